"""What metrics and callbacks add to a step of `fit` on several ranks, beside what they add to Keras' own.

    tarantella -n 2 -- benchmarks/training/keras_cost.py [--rounds 8] [--steps 150] [--json]

Four models take turns, round by round, on all ranks at once: plain Keras on each rank by itself and `tnt.Model`, each without
metrics and callbacks and with five metrics and four callbacks. Reported is the median over rounds of a step's time, and what
metrics and callbacks add in `tnt.Model` beyond what they add in plain Keras.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tarantella as tnt


def model() -> Any:
    """A step takes some 10 ms on one core."""
    hidden = [keras.layers.Dense(512, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((256,)), *hidden, keras.layers.Dense(10)])


METRICS = ["accuracy", "mae", "mse", "cosine_similarity", "top_k_categorical_accuracy"]


class Counting(keras.callbacks.Callback):
    """A callback of a user's: after each step ranks agree that none has failed in it."""

    steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1


class EpochTimer(keras.callbacks.Callback):
    """The time of an epoch, measured where nothing is exchanged for it."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds = time.perf_counter() - self.began


def callbacks() -> list[Any]:
    return [
        keras.callbacks.EarlyStopping("loss", patience=1000),
        keras.callbacks.ReduceLROnPlateau("loss", patience=1000),
        keras.callbacks.TerminateOnNaN(),
        Counting(),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=128, help="of each rank")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    random = np.random.default_rng(tnt.get_rank())
    x = random.normal(size=(given.batch, 256)).astype(np.float32)
    y = tf.one_hot(random.integers(0, 10, given.batch), 10)
    mine = tf.data.Dataset.from_tensors((x, y)).repeat()
    runs: dict[str, tuple[Any, Any]] = {}
    for name in ("keras", "keras with", "tnt", "tnt with"):
        strategy = tnt.ParallelStrategy.DATA if name.startswith("tnt") else tnt.ParallelStrategy.NONE
        one = tnt.Model(model(), strategy)
        metrics = METRICS if name.endswith("with") else []
        one.compile(keras.optimizers.SGD(1e-4), keras.losses.CategoricalCrossentropy(from_logits=True), metrics=metrics)
        runs[name] = one, {"tnt_distribute_dataset": False} if name.startswith("tnt") and tnt.get_size() > 1 else {}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(given.rounds + 1):
        for name, (one, how) in runs.items():
            tnt.barrier()
            timer = EpochTimer()
            used = [timer, *(callbacks() if name.endswith("with") else [])]
            one.fit(mine, steps_per_epoch=given.steps, verbose=0, callbacks=used, **how)
            if turn:  # the first traces
                times[name].append(1e3 * timer.seconds / given.steps)
    step = {name: statistics.median(values) for name, values in times.items()}
    added = {kind: step[f"{kind} with"] - step[kind] for kind in ("keras", "tnt")}
    percent = 100 * (added["tnt"] - added["keras"]) / step["tnt"]
    if tnt.is_master_rank():
        found = {"ranks": tnt.get_size(), "step_ms": step, "added_ms": added, "beyond_keras_percent": percent}
        print(json.dumps(found) if given.json else "\n".join(f"{key}: {value}" for key, value in found.items()))


main()
