"""One training run, plain or distributed, and what is kept of it for the comparison."""

from __future__ import annotations

import hashlib
import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow import keras

import tarantella as tnt

EPOCHS = 3
SEED = 4711


class StepLosses(keras.callbacks.Callback):
    """The loss of every step alone, where Keras shows the mean since the epoch began."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        for metric in self.model.metrics:  # legacy Keras has none before the first step
            if metric.name == "loss":
                metric.reset_state()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(logs["loss"])


@dataclass
class Outcome:
    """What a run leaves: on one device and on any number of ranks it must be the same."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    """By name: ``steps``, ``weights/0``, ``logs/val_loss`` and whatever a case adds."""

    def add(self, name: str, value: Any) -> None:
        """Keeps an array, or each of a list's or dict's."""
        if isinstance(value, (list, tuple)) and any(np.ndim(item) for item in value):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            for key, item in value.items():
                self.add(f"{name}/{key}", item)
        else:
            array = np.asarray(value)
            self.arrays[name] = array.astype(np.float64) if array.dtype.kind in "fV" else array

    def digest(self) -> str:
        """Equal on two ranks only if every bit of the outcome is."""
        text = hashlib.blake2b(digest_size=16)
        for name, array in sorted(self.arrays.items()):
            text.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return text.hexdigest()


@dataclass(frozen=True)
class Job:
    """Who trains: one plain process, or one of several ranks."""

    serial: bool
    rank: int
    size: int

    @staticmethod
    def of(serial: bool) -> Job:
        return Job(True, 0, 1) if serial else Job(False, tnt.get_rank(), tnt.get_size())

    def wrap(self, model: Any) -> Any:
        """The model as this job trains it."""
        return model if self.serial else tnt.Model(model)

    def train(
        self,
        model: Any,
        data: Any,
        *,
        optimizer: Any,
        loss: Any,
        epochs: int = EPOCHS,
        compiling: dict[str, Any] | None = None,
        by_step: bool = False,
        **fit: Any,
    ) -> tuple[Any, Outcome]:
        """The trained model and its outcome: losses, metrics by epoch, weights. data: a dataset or arguments of fit."""
        model = self.wrap(model)
        model.compile(optimizer=optimizer, loss=loss, **(compiling or {}))
        outcome = Outcome()
        self.fit(model, data, outcome, epochs=epochs, by_step=by_step, **fit)
        return model, outcome

    def fit(
        self,
        model: Any,
        data: Any,
        outcome: Outcome,
        prefix: str = "",
        by_step: bool = False,
        **fit: Any,
    ) -> None:
        """Fits once (more), and keeps what came of it."""
        callbacks = fit.pop("callbacks", [])
        losses = StepLosses() if by_step else None
        history = model.fit(
            **(data if isinstance(data, dict) else {"x": data}),
            verbose=0,
            callbacks=[*callbacks, *([losses] if losses else [])],
            **fit,
        )
        if losses:
            outcome.add(f"{prefix}steps", np.array(losses.losses))
        outcome.add(f"{prefix}logs", {key: np.array(values) for key, values in history.history.items()})
        outcome.add(f"{prefix}weights", [np.asarray(w) for w in model.get_weights()])


Case = Callable[[Job], Outcome]


def run_all(cases: dict[str, Case], job: Job, folder: Path) -> None:
    """Runs the cases and writes `NAME.npz` (rank 0) and `NAME.RANK.json` (all): a digest, or the traceback."""
    for name, case in cases.items():
        keras.backend.clear_session()
        keras.mixed_precision.set_global_policy("float32")
        keras.utils.set_random_seed(SEED)
        try:
            outcome = case(job)
            end = {"digest": outcome.digest()}
            if job.rank == 0:
                np.savez(folder / f"{name}.npz", **{key.replace("/", "|"): a for key, a in outcome.arrays.items()})
        except Exception:
            end = {"error": traceback.format_exc()}
        (folder / f"{name}.{job.rank}.json").write_text(json.dumps(end))
