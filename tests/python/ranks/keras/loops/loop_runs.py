"""The models and steps of the checks of custom training loops, and runs of them on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

RANK, SIZE = tnt.get_rank(), tnt.get_size()
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = np.stack([x[:, 0] * x[:, 1], x.sum(1)], 1)
SHARES = [0, 24, 27, 40] if SIZE == 3 else [0, 40]  # very different ones
BATCHES = [40, 31, 26, 25, 2, 1]  # the later ones leave ranks without a sample


def make(rows: int = 0) -> Any:
    keras.utils.set_random_seed(11)
    if rows:
        table = layers.Embedding(rows, 8)
        return keras.Sequential([keras.Input((4,), dtype="int32"), table, layers.Flatten(), layers.Dense(2)])
    return keras.Sequential([keras.Input((4,)), layers.Dense(6, activation="tanh"), layers.Dense(2)])


def flat(model: Any) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in model.get_weights()])


def mine(array: np.ndarray, size: int) -> np.ndarray:
    """This rank's part of the first samples, and one of nothing but NaN if there is none."""
    part = array[:size][SHARES[RANK] : SHARES[RANK + 1]]
    return part if len(part) else np.full_like(array[:1], np.nan if array.dtype.kind == "f" else 0)


def loss_of(model: Any, a: Any, b: Any) -> tf.Tensor:
    return tf.reduce_mean(tf.square(model(a) - b))


def serial(optimizer: Any, batches: list[int] = BATCHES, inputs: np.ndarray = x, rows: int = 0) -> np.ndarray:
    model = make(rows)
    for size in batches:
        with tf.GradientTape() as tape:
            loss = loss_of(model, inputs[:size], y[:size])
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
    return flat(model)


Step = Callable[[Any, Any, Any, Any, Any], None]


def with_tape(model: Any, optimizer: Any, a: Any, b: Any, samples: Any) -> None:
    with tnt.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_of(model, a, b)
    optimizer.apply(tape.gradient(loss, model.trainable_variables, samples=samples), model.trainable_variables)


def with_apply(model: Any, optimizer: Any, a: Any, b: Any, samples: Any) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(loss_of(model, a, b))
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables, samples=samples)


def with_apply_gradients(model: Any, optimizer: Any, a: Any, b: Any, samples: Any) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(loss_of(model, a, b))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True), samples=samples)


def distributed(
    step: Step, optimizer: Any, graph: bool, batches: list[int] = BATCHES, inputs: np.ndarray = x, rows: int = 0
) -> np.ndarray:
    model = make(rows)
    for variable in model.variables:
        variable.assign(variable + RANK)
    tnt.broadcast_variables(model.variables)
    if step is not with_tape:
        optimizer = tnt.optimizers.Optimizer(optimizer)
    one = tf.function(lambda *batch: step(model, optimizer, *batch)) if graph else lambda *batch: step(model, optimizer, *batch)
    for size in batches:
        samples = max(0, min(size, SHARES[RANK + 1]) - SHARES[RANK])
        one(tf.constant(mine(inputs, size)), tf.constant(mine(y, size)), tf.constant(samples))
    return flat(model)


def away(ours: np.ndarray, truth: np.ndarray) -> list[float]:
    """How far from it the worst rank is, and how far the ranks are from each other."""
    spread = tnt.all_reduce(ours, "max") - tnt.all_reduce(ours, "min")
    return [float(tnt.all_reduce(np.abs(ours - truth).max(), "max")), float(spread.max())]
