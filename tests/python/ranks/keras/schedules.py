"""Learning rates at many steps, in graphs, in files, and in a training."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, raised, run

schedules = tnt.keras.schedules
EXPONENTIAL = {"base_rate": 0.1, "steps_per_epoch": 7, "decay_epochs": 4, "decay_rate": 0.3, "warmup_epochs": 3}
PIECEWISE = {"base_rate": 0.2, "steps_per_epoch": 7, "boundaries": [6, 9], "multipliers": [1.0, 0.5, 0.1]}


def rates(schedule: Any) -> list[float]:
    return [float(schedule(step)) for step in range(100)]


@check
def by_step() -> dict[str, list[float]]:
    return {
        "exponential": rates(schedules.ExpDecayWithWarmup(**EXPONENTIAL, ranks=4)),
        "staircase": rates(schedules.ExpDecayWithWarmup(**EXPONENTIAL, staircase=True, ranks=4)),
        "piecewise": rates(schedules.PiecewiseConstantDecayWithWarmup(**PIECEWISE)),
        "without warm-up": rates(schedules.PiecewiseConstantDecayWithWarmup(**{**PIECEWISE, "warmup_epochs": 0})),
    }


@check
def types() -> list[Any]:
    """Of the rate, eagerly and in a graph, for steps of any type."""
    schedule = schedules.ExpDecayWithWarmup(**EXPONENTIAL)
    steps = [3, np.int64(3), tf.constant(3, tf.int32), tf.Variable(3, dtype=tf.int64), tf.constant(3.0, tf.float64)]
    found = [schedule(step) for step in steps] + [tf.function(schedule)(tf.constant(3, tf.int64))]
    return [sorted({rate.dtype.name for rate in found}), len({float(rate) for rate in found})]


@check
def configs() -> list[bool]:
    made = [
        schedules.ExpDecayWithWarmup(**EXPONENTIAL, staircase=True, ranks=3),
        schedules.PiecewiseConstantDecayWithWarmup(**PIECEWISE, ranks=3),
    ]
    again = [type(schedule).from_config(schedule.get_config()) for schedule in made]
    return [a.get_config() == b.get_config() and rates(a) == rates(b) for a, b in zip(made, again, strict=True)]


@check
def training() -> list[Any]:
    """The rate of each step of a training, and of one that goes on from a file."""
    schedule = schedules.ExpDecayWithWarmup(**EXPONENTIAL)
    model = tnt.Model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(schedule), "mse")
    seen: list[float] = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seen.append(float(model.optimizer.learning_rate.numpy()))
    )
    x = np.ones((28, 2), np.float32)
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[note])
    file = Path(sys.argv[1], "model.keras")
    model.save(file)
    loaded = keras.saving.load_model(file)
    return [seen == rates(schedule)[:14], float(loaded.optimizer.learning_rate.numpy()) == rates(schedule)[14], schedule.ranks]


@check
def refused() -> list[Any]:
    exponential, piecewise = schedules.ExpDecayWithWarmup, schedules.PiecewiseConstantDecayWithWarmup
    return [
        raised(exponential, 0.1, 0),
        raised(exponential, -0.1, 10),
        raised(exponential, 0.1, 10, warmup_epochs=-1),
        raised(exponential, 0.1, 10, decay_epochs=0),
        raised(exponential, 0.1, 10, ranks=0),
        raised(piecewise, 0.1, 10, boundaries=[3, 2], multipliers=[1, 1, 1]),
        raised(piecewise, 0.1, 10, boundaries=[3], multipliers=[1]),
    ]


run(sys.argv[1])
