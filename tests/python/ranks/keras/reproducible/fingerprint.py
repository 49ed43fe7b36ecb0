"""Trainings of which TNT_FINGERPRINT tells; `python fingerprint.py VARIANT...`, one after another in one process."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt
from tarantella.keras.adapter import keras

BATCH, BATCHES = 8, 3


def dense(**how: Any) -> Any:
    """Integers only, and a learning rate that is a power of two: every number is exact, so that NumPy gives the same bits."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1, kernel_initializer="zeros", name="d")])
    model = tnt.Model(model)
    model.compile(optimizer=how.pop("optimizer", keras.optimizers.SGD(0.125)), loss="mse", **how)
    return model


def data() -> tuple[np.ndarray, np.ndarray]:
    """Small integers."""
    random = np.random.default_rng(0)
    return random.integers(-2, 3, (BATCH * BATCHES, 3)).astype("float32"), random.integers(-2, 3, (24, 1)).astype("float32")


def fit(model: Any, **how: Any) -> None:
    """The same for all variants."""
    model.fit(*data(), batch_size=BATCH, epochs=2, shuffle=False, verbose=0, **how)


def plain() -> Any:
    model = dense()
    fit(model)
    return model


def executions() -> Any:
    model = dense(steps_per_execution=2)
    fit(model)
    return model


def compiled() -> Any:
    model = dense(jit_compile=True)
    fit(model)
    return model


def accumulating() -> Any:
    model = dense(optimizer=keras.optimizers.SGD(0.125, gradient_accumulation_steps=2))
    fit(model)
    return model


def single_steps() -> Any:
    model = dense()
    x, y = data()
    for begin in range(0, len(x), BATCH):
        model.train_on_batch(x[begin : begin + BATCH], y[begin : begin + BATCH])
    return model


def rows() -> Any:
    """Gradients that come as rows of a table."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Embedding(3000, 8), keras.layers.Flatten(),
                              keras.layers.Dense(1)])  # fmt: skip
    model = tnt.Model(model)
    model.compile(optimizer="sgd", loss="mse")
    model.fit(np.arange(96).reshape(24, 4) % 50, data()[1], batch_size=BATCH, shuffle=False, verbose=0)
    return model


def main() -> None:
    found = {}
    for variant in sys.argv[1:]:
        model = globals()[variant]()
        weights = [tf.fingerprint(tf.reshape(weight, [1, -1])).numpy()[0] for weight in model.get_weights()]
        found[variant] = [f"{int.from_bytes(weight.tobytes(), 'little'):016x}" for weight in weights]
    if tnt.is_master_rank():
        print(json.dumps(found))


main()
