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
        began = _read(self._model)
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
        _write(self._model, settings)

    @property
    def history(self) -> dict[str, dict[str, float]]:
        """The figures of each epoch that has been evaluated, by its number from 1."""
        return _read(self._history) if self._history.is_file() else {}

    def keep(self, history: dict[str, dict[str, float]], model: Any) -> None:
        """Stores figures and weights."""
        model.save_weights(self.weights)
        _write(self._history, history)

    def load(self, vocabulary: Path | None = None) -> tuple[Transformer, Tokens]:
        """The network with its weights, and its vocabulary."""
        if not self._model.is_file() or not self.weights.is_file():
            raise DataError(f"{self.path} has no trained model: train one by train.py --model_dir {self.path}")
        settings = _read(self._model)
        tokens = Tokens(vocabulary or self.vocabulary)
        self.check(self.settings(settings["param_set"], settings["max_length"], tokens), vocabulary or self.vocabulary)
        transformer = Transformer(SIZES[settings["param_set"]], len(tokens), settings["max_length"], name="transformer")
        try:
            keras_model(transformer).load_weights(self.weights)
        except (OSError, KeyError, ValueError) as error:
            raise DataError(f"{self.weights} is damaged, or of another network: {error}") from error
        return transformer, tokens


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except ValueError as error:  # also if it is not UTF-8
        raise DataError(f"{file} is damaged ({error}): restore it, or give another --model_dir") from error
    if not isinstance(found, dict):
        raise DataError(f"{file} is damaged (it holds no object): restore it, or give another --model_dir")
    return found


def _write(file: Path, content: dict[str, Any]) -> None:
    """All of it or nothing, if the process is killed."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1))
    new.replace(file)
