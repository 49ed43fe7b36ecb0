"""Rank 1 forks in the middle of `fit`, and each rank's data come from worker processes. The weights are those without forks.

forks_in_fit.py FOLDER

Each rank writes what it found to `RANK.json` in the folder.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)
BATCH = 10


class Batches(keras.utils.Sequence if LEGACY else keras.utils.PyDataset):
    """The data, from two worker processes."""

    def __len__(self) -> int:
        return len(X) // BATCH

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        part = slice(index * BATCH, (index + 1) * BATCH)
        return X[part], Y[part]


class Fork(keras.callbacks.Callback):
    """After each batch, a process that calls the library and ends in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[list[Any]] = []
        self.running: list[int] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        how = ("os._exit", "multiprocessing", "sys.exit")[batch % 3]
        if how == "multiprocessing":
            process = multiprocessing.get_context("fork").Process(target=refused)
            process.start()
            process.join()
            self.ended.append([how, process.exitcode])
            return
        pid = os.fork()
        if pid == 0 and how == "os._exit":
            os._exit(refused())
        if pid == 0:
            sys.exit(0)
        if how == "os._exit":
            self.ended.append([how, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])])
        else:  # TensorFlow keeps an interpreter with its threads missing from ending
            self.running.append(pid)

    def on_train_end(self, logs: Any = None) -> None:
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def refused() -> int:
    """0 if the library refuses a collective."""
    try:
        tnt.all_reduce(np.full(3, 5.0))
    except tnt.UnsupportedError:
        return 0
    return 1


def train(data: Any, callbacks: list[Any], **arguments: Any) -> list[str]:
    """The weights after training, exactly."""
    keras.utils.set_random_seed(1)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)]))
    model.compile("adam", "mse")
    model.fit(data, epochs=2, verbose=0, callbacks=callbacks, **arguments)
    return [weight.tobytes().hex() for weight in model.get_weights()]


def main(folder: str) -> None:
    fork = Fork()
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    found: dict[str, Any] = {"without": train(dataset, [])}
    found["with forks"] = train(dataset, [fork] if tnt.get_rank() == 1 else [])
    found["ended"] = fork.ended
    if LEGACY:
        found["with workers"] = train(Batches(), [], workers=2, use_multiprocessing=True, shuffle=False)
    else:
        found["with workers"] = train(Batches(workers=2, use_multiprocessing=True), [], shuffle=False)
    Path(folder, f"{tnt.get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
