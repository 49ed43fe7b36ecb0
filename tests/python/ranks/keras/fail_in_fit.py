"""Rank 1 fails in the middle of training, in a way that is asked for, or cannot train with the others at all.

fail_in_fit.py FOLDER HOW

Each rank that gets an error writes its class, its text and the seconds since the failure (or since fit began) to
`RANK.json` in the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

folder, how = Path(sys.argv[1]), sys.argv[2]
rank, size = int(os.environ["TNT_RANK"]), int(os.environ["TNT_SIZE"])


class Fail(keras.callbacks.Callback):
    """In the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if rank == 1 and self.epoch == 1 and batch == 2:
            (folder / "failed").write_text(str(time.monotonic()))
            if how == "raise":
                raise ValueError("this batch is not good")
            if how == "stop_training":
                self.model.stop_training = True
            if how.startswith("SIG"):
                os.kill(os.getpid(), signal.Signals[how])


# TensorFlow takes its time to load; only then does the clock of the deadlines run
(folder / f"ready{rank}").touch()
while not all((folder / f"ready{other}").exists() for other in range(size)):
    time.sleep(0.01)

units = 7 if how == "other model" and rank == 1 else 6
model = tnt.Model(keras.Sequential([keras.Input((4,)), layers.Dense(units, name="hidden"), layers.Dense(1)], name="model"))
model.compile("adam", "mse")
fewer = how in ("fewer batches", "fewer batches than can be known")
samples = 30 if fewer and rank == 1 else 60
x = np.random.default_rng(0).normal(size=(samples, 4)).astype(np.float32)
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(10)
if how == "fewer batches than can be known":
    dataset = dataset.filter(lambda *_: True)
began = time.monotonic()
try:
    model.fit(dataset, epochs=300, verbose=0, callbacks=[Fail()], tnt_distribute_dataset=not fewer)
except tnt.TarantellaError as error:
    since = float((folder / "failed").read_text()) if (folder / "failed").exists() else began
    found = {"kind": type(error).__name__, "text": str(error), "seconds": time.monotonic() - since}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    raise
