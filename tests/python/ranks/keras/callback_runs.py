"""The models and data of the callback checks, and runs of them beside serial Keras."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import log_messages

RANK, SIZE = tnt.get_rank(), tnt.get_size()
FOLDER = Path(sys.argv[1], "shared")
MINE = Path(sys.argv[1], f"of-rank-{RANK}")
FOLDER.mkdir(exist_ok=True)
MINE.mkdir()

x = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
y = np.stack([x[:, 0] * x[:, 1], x.sum(1)], 1)
x_nan = x.copy()
x_nan[25] = np.nan  # in the third batch, on one rank
TRAINING, WITH_NAN = (tf.data.Dataset.from_tensor_slices((samples, y)).batch(12) for samples in (x, x_nan))
VALIDATION = tf.data.Dataset.from_tensor_slices((x[:23] + 1, y[:23])).batch(12)
STEPS = 5  # of an epoch, the last one with 2 samples
messages = log_messages()
Callback = keras.callbacks.Callback
callbacks = tnt.callbacks


def compiled(model: Any, **kwargs: Any) -> Any:
    model.compile(keras.optimizers.Adam(0.01, **kwargs), "mse", metrics=["mae"])
    return model


def network() -> Any:
    keras.utils.set_random_seed(5)
    return keras.Sequential([keras.Input((4,)), layers.Dense(7, activation="tanh"), layers.Dense(2)])


class Fresh:
    """A model as it was made: to make and trace one for every run would take most of the time."""

    def __init__(self, wrap: Any, **kwargs: Any) -> None:
        self._model = compiled(wrap(network()), **kwargs)
        self._model.optimizer.build(self._model.trainable_variables)
        self._variables = [*self._model.variables, *self._model.optimizer.variables]
        self._values = [np.array(v) for v in self._variables]

    def __call__(self) -> Any:
        for variable, value in zip(self._variables, self._values, strict=True):
            variable.assign(value)
        self._model._initial_epoch = None  # Keras keeps what BackupAndRestore has set
        return self._model


def leave_plain(model: Any) -> Any:
    return tnt.Model(model, tnt.ParallelStrategy.NONE)


plain, distributed = Fresh(leave_plain), Fresh(tnt.Model)


def fit(model: Any, given: Any, batches: Any = TRAINING, epochs: int = 4, verbose: Any = 0) -> Any:
    return model.fit(batches, epochs=epochs, callbacks=given, verbose=verbose, validation_data=VALIDATION)


def flat(model: Any) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def far_apart(one: dict[str, list[float]], other: dict[str, list[float]]) -> float:
    """The largest relative difference between two histories."""
    assert one.keys() == other.keys(), (one.keys(), other.keys())
    return max(float(np.max(np.abs(np.subtract(one[k], other[k])) / np.abs(one[k]))) for k in one)


def like_serial(make: Any, models: Any = (plain, distributed), **kwargs: Any) -> list[Any]:
    """Epochs that were run, by how much logs and weights differ from serial Keras', and what the callbacks know after it."""
    found = []
    for fresh in models:
        model, given = fresh(), make()
        history = fit(model, given, **kwargs).history
        found.append((history, flat(model), given))
    (serial, weights, before), (ours, our_weights, after) = found
    assert [type(callback) for callback in after] == [type(callback) for callback in before]  # no one has added any
    return [len(ours["loss"]), far_apart(serial, ours), float(np.abs(weights - our_weights).max()), before, after]


class Keep(Callback):
    """Every hook that was called, with its logs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []


def keeping(hook: str) -> Any:
    def keep(self: Keep, *args: Any, **kwargs: Any) -> None:
        numbers = [a for a in args if isinstance(a, int)]
        logs = next((a for a in (*args, *kwargs.values()) if isinstance(a, dict)), {})
        self.seen.append([hook, *numbers, {key: float(value) for key, value in logs.items()}])

    return keep


HOOKS = [name for name in dir(Callback) if re.fullmatch(r"on_(epoch|train|test|train_batch|test_batch)_(begin|end)", name)]
for name in HOOKS:
    setattr(Keep, name, keeping(name))
