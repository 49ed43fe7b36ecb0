"""Trainings that break off and go on from their checkpoint, each kind of data and of state one case.

    checkpoints.py begin FOLDER [CASE ...]      trains each case to its end, and again until it breaks off
    checkpoints.py continue FOLDER [CASE ...]   is started again: trains each case from its checkpoint to its end
    checkpoints.py kill FOLDER CASE             as `continue`, but with checkpoints in parts, and rank 0 is
                                                killed (kill -9) after four steps

What came of each case is written to FOLDER/MODE.json, by the master; ranks that differ are an error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt

keras = tf.keras
LEGACY = not hasattr(keras.utils, "PyDataset")
if LEGACY:
    keras.backend.experimental.enable_tf_random_generator()  # else the states of its random layers cannot be stored
MODE, FOLDER = sys.argv[1], Path(sys.argv[2])
EPOCHS, SAMPLES, BATCH = 3, 50, 12
STEPS = 5  # the last batch has two samples

rng = np.random.default_rng(3)
X = rng.normal(size=(SAMPLES, 6)).astype("float32")
Y = (X.sum(1, keepdims=True) > 0).astype("float32")

_cases: dict[str, Callable[[], dict[str, Any]]] = {}


def case(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """The function gives what `fit` is called with, and what `run` takes out of it where it is not as usual."""
    _cases[function.__name__] = function
    return function


def network(*layers: Any) -> Any:
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), *layers, keras.layers.Dense(1, activation="sigmoid")]
    )


def compiled(given: dict[str, Any]) -> Any:
    model = tnt.Model(given.pop("model", None) or network())
    optimizer = given.pop("optimizer", None) or keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(optimizer, "binary_crossentropy", **given.pop("compile", {}))
    return model


class BreakOff(keras.callbacks.Callback):
    """On all ranks, after so many steps."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self._left = after

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._left == 0:
            raise KeyError("broken off")
        self._left -= 1


class Kill(keras.callbacks.Callback):
    """Rank 0, after some steps, and as soon as there is a checkpoint of one of them."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__()
        self._folder, self._left = folder, after
        self._before = set(folder.glob("*.npz"))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._left == 0 and tnt.is_master_rank():
            while not set(self._folder.glob("*.npz")) - self._before:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class Counts(keras.callbacks.Callback):
    """Remembers a number, which a checkpoint must bring back."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1

    def get_state(self) -> dict[str, Any]:
        return {"steps": self.steps, "array": np.arange(self.steps)}

    def set_state(self, state: dict[str, Any]) -> None:
        assert len(state["array"]) == state["steps"]
        self.steps = state["steps"]


def run(name: str, folder: Path | None, breaks_off: bool) -> dict[str, Any] | None:
    keras.utils.set_random_seed(11)
    given = _cases[name]()
    after = given.pop("breaks_off", STEPS + 3)
    every = given.pop("every", {"every_steps": 1})
    model, counts = compiled(given), Counts()
    callbacks = [counts, *given.pop("callbacks", list)()]
    if folder is not None:
        callbacks.append(tnt.callbacks.Checkpoint(folder / name, **every, sharded=MODE == "kill"))
    if breaks_off:
        callbacks.append(BreakOff(after))
    if MODE == "kill":
        callbacks.append(Kill(FOLDER / name, 4))
    try:
        history = model.fit(**given, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    except KeyError:
        assert breaks_off
        return None
    weights = [w.astype(float).ravel().tolist() for w in model.get_weights()]
    logs = {key: [float(number) for number in numbers] for key, numbers in history.history.items()}
    iterations = int(model.optimizer.iterations.numpy())
    return {"epochs": history.epoch, "logs": logs, "weights": weights, "iterations": iterations, "steps": counts.steps}


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y))


@case
def shuffled() -> dict[str, Any]:
    """The batches of epochs before need not be made; callbacks decide by what was before."""

    def callbacks() -> list[Any]:
        return [
            keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.05, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=1.0),
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        ]

    return {
        "x": dataset().shuffle(SAMPLES, seed=4).map(lambda x, y: (x * 2, y)).batch(BATCH).prefetch(2),
        "optimizer": keras.optimizers.Adam(0.02),  # whose steps depend on how many there were
        "compile": {"metrics": ["mae", keras.metrics.AUC(name="auc")]},  # whose state is of several numbers
        "model": network(tnt.keras.layers.SyncBatchNormalization()),
        "validation_data": dataset().shuffle(SAMPLES, seed=9).batch(BATCH),
        "validation_steps": 2,  # other samples in each epoch
        "callbacks": callbacks,
        "breaks_off": 2 * STEPS + 3,
    }


@case
def after_an_epoch() -> dict[str, Any]:
    return {"x": dataset().shuffle(SAMPLES, seed=4).batch(BATCH), "breaks_off": 2 * STEPS + 2, "every": {"every_epochs": 2}}


@case
def random_maps() -> dict[str, Any]:
    """Each batch depends on how many were made before, in validations as well.

    Gradients are accumulated over three steps, where Keras can.
    """
    generator, of_validation = tf.random.Generator.from_seed(8), tf.random.Generator.from_seed(9)

    def noisy(x: Any, y: Any) -> Any:
        return x + generator.normal([6]) / 10 + tf.random.uniform([6], seed=5), y

    def validated(x: Any, y: Any) -> Any:
        return x + of_validation.normal([6]), y

    accumulates = {} if LEGACY else {"gradient_accumulation_steps": 3}
    return {
        "x": dataset().shuffle(SAMPLES, seed=4).map(noisy).batch(BATCH),
        "validation_data": dataset().map(validated).batch(BATCH),
        "optimizer": keras.optimizers.SGD(0.1, momentum=0.9, **accumulates),
    }


@case
def without_end() -> dict[str, Any]:
    """One iterator for all epochs, and two steps at once."""
    given = dataset().shuffle(SAMPLES, seed=4).repeat().batch(BATCH)
    return {"x": given, "steps_per_epoch": 6, "compile": {"steps_per_execution": 2}, "breaks_off": 5}


@case
def of_unknown_length() -> dict[str, Any]:
    return {"x": dataset().filter(lambda x, y: x[0] < 1).shuffle(SAMPLES, seed=4).batch(BATCH), "breaks_off": 6}


@case
def arrays() -> dict[str, Any]:
    return {"x": X, "y": Y, "batch_size": BATCH, "class_weight": {0: 1.0, 1: 3.0}, "validation_split": 0.2, "breaks_off": 6}


@case
def generator() -> dict[str, Any]:
    def batches() -> Iterator[Any]:
        while True:
            chosen = np.random.randint(0, SAMPLES, BATCH)
            yield X[chosen], Y[chosen]

    return {"x": batches(), "steps_per_epoch": STEPS}


class Shuffled(keras.utils.Sequence if LEGACY else keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._order = np.arange(SAMPLES)

    def __len__(self) -> int:
        return -(-SAMPLES // BATCH)

    def __getitem__(self, index: int) -> Any:
        chosen = self._order[index * BATCH : (index + 1) * BATCH]
        return X[chosen], Y[chosen]

    def on_epoch_end(self) -> None:
        np.random.shuffle(self._order)


@case
def python_sequence() -> dict[str, Any]:
    return {"x": Shuffled(), "shuffle": True}


@case
def of_each_rank() -> dict[str, Any]:
    """Moving averages and dropout are another on another number of ranks."""
    return {
        "x": dataset().shuffle(SAMPLES, seed=4).batch(BATCH),
        "model": network(keras.layers.BatchNormalization(), keras.layers.Dropout(0.3, seed=5)),
        "validation_data": (X, Y),
    }


found: dict[str, Any] = {}
for name in sys.argv[3:] or _cases:
    if MODE == "begin":
        found[name] = run(name, None, breaks_off=False)
        assert run(name, FOLDER, breaks_off=True) is None, name
    else:
        found[name] = run(name, FOLDER, breaks_off=False)
    digests = tnt.all_gather(np.frombuffer(json.dumps(found[name]).encode().ljust(1 << 15), np.uint8))
    assert all(np.array_equal(digest, digests[0]) for digest in digests), f"ranks differ in {name}"
if tnt.is_master_rank():
    Path(FOLDER, f"{MODE}.json").write_text(json.dumps(found))
