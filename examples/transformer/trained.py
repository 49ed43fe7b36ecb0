"""What a training leaves in its folder, from which it goes on, and from which `translate.py` translates.

* ``data/``: the sentences, if they were collected from message catalogues
* ``vocabulary.json``: the subwords
* ``model.json``: the size of the network, and which vocabulary it has
* ``checkpoints/``: a complete state for each `fit`, by `tnt.callbacks.Checkpoint`
* ``transformer.weights.h5``: the weights after the last epoch, a plain file of Keras
* ``history.json``: loss, BLEU and speed of each epoch
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from corpus import DataError
from network import SIZES, Transformer, keras_model
from tokens import Tokens


class Folder:
    """The files of a training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data, self.checkpoints = path / "data", path / "checkpoints"
        self.vocabulary, self.weights = path / "vocabulary.json", path / "transformer.weights.h5"
        self._model, self._history = path / "model.json", path / "history.json"

    def settings(self, param_set: str, max_length: int, tokens: Tokens) -> dict[str, Any]:
        return {"param_set": param_set, "max_length": max_length, "vocabulary": len(tokens), "fingerprint": tokens.fingerprint}

    def check(self, wanted: dict[str, Any], vocabulary: Path) -> None:
        """Raises DataError if a training has begun here with another network or vocabulary."""
        if not self._model.is_file():
            return
        began = json.loads(self._model.read_text())
        if any(began[key] != wanted[key] for key in ("vocabulary", "fingerprint")):
            raise DataError(
                f"the vocabulary {vocabulary} ({wanted['vocabulary']} tokens) is not the one that the training in {self.path} "
                f"began with ({began['vocabulary']} tokens): give that one, or another --model_dir"
            )
        for key in ("param_set", "max_length"):
            if began[key] != wanted[key]:
                raise DataError(
                    f"the training in {self.path} began with --{key} {began[key]}, not {wanted[key]}: give that, or another "
                    "--model_dir"
                )

    def begin(self, settings: dict[str, Any]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._model.write_text(json.dumps(settings, indent=1))

    @property
    def history(self) -> dict[str, dict[str, float]]:
        """The figures of each epoch that has been evaluated, by its number from 1."""
        return json.loads(self._history.read_text()) if self._history.is_file() else {}

    def keep(self, history: dict[str, dict[str, float]], model: Any) -> None:
        """Stores figures and weights."""
        model.save_weights(self.weights)
        self._history.write_text(json.dumps(history, indent=1))

    def load(self, vocabulary: Path | None = None) -> tuple[Transformer, Tokens]:
        """The network with its weights, and its vocabulary."""
        if not self._model.is_file() or not self.weights.is_file():
            raise DataError(f"{self.path} has no trained model: train one by train.py --model_dir {self.path}")
        settings = json.loads(self._model.read_text())
        tokens = Tokens(vocabulary or self.vocabulary)
        self.check(self.settings(settings["param_set"], settings["max_length"], tokens), vocabulary or self.vocabulary)
        transformer = Transformer(SIZES[settings["param_set"]], len(tokens), settings["max_length"], name="transformer")
        keras_model(transformer).load_weights(self.weights)
        return transformer, tokens
