"""float16 with a scaled loss: what overflows on one rank is left out on all. And how often gradients are reduced."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
BATCH = 8
small = keras.initializers.RandomUniform(-0.1, 0.1, seed=1)  # nothing else overflows
x = np.random.default_rng(0).normal(size=(5 * BATCH, 4)).astype(np.float32)
y = 0.1 * x.sum(1, keepdims=True)
x_overflowing, y_overflowing = x.copy(), y.copy()
y_overflowing[2 * BATCH + 1] = 6e4  # rank 1's of the third batch: times the scale it is more than float16 can hold


y_large = y.copy()
y_large[3] = 6.0  # its gradient fits into float16 as a part of the mean over 8 samples, not of that over 4


y_of_large_sum = y.copy()
y_of_large_sum[2 * BATCH : 3 * BATCH] += 1.5  # each gradient of the third batch fits into float16, their sum does not


def make(**optimizer: Any) -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6, activation="tanh"), layers.Dense(1, kernel_initializer=small)])
    keras.config.set_dtype_policy("float32")
    model.compile(keras.optimizers.SGD(0.01, **optimizer), "mse")
    return model


class Steps(keras.callbacks.Callback):
    """Scale, step count and weights after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[float]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        weights = np.concatenate([np.ravel(w) for w in self.model.get_weights()])
        self.seen.append([float(optimizer.dynamic_scale.numpy()), int(optimizer.iterations), *weights.tolist()])


def fitted(model: Any, x: Any = x_overflowing, y: Any = y_overflowing) -> list[list[float]]:
    steps = Steps()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[steps])
    return steps.seen


def wrapped(model: Any) -> Any:
    ours = tnt.Model(model)
    ours.compile(model.optimizer.inner_optimizer, "mse")
    return ours


@check
def overflow_in_fit() -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "plain": {},
        "clipnorm": {"clipnorm": 0.1},
        "global_clipnorm": {"global_clipnorm": 0.1},
        "clipvalue": {"clipvalue": 0.01},
        "accumulation": {"gradient_accumulation_steps": 2},
    }
    alone = tnt.ParallelStrategy.NONE
    return {
        name: [fitted(wrapped(make(**how))), fitted(tnt.Model(make(**how), parallel_strategy=alone))]
        for name, how in kinds.items()
    }


@check
def large_gradients() -> list[list[list[list[float]]]]:
    alone = tnt.ParallelStrategy.NONE
    return [
        [fitted(wrapped(make()), x, labels), fitted(tnt.Model(make(), parallel_strategy=alone), x, labels)]
        for labels in (y_large, y_of_large_sum)
    ]


@check
def overflow_in_a_loop() -> list[list[float]]:
    model = make()
    optimizer = tnt.optimizers.Optimizer(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)))

    @tf.function
    def step(a: Any, b: Any) -> None:
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_mean(tf.square(tf.cast(model(a), tf.float32) - b)))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    seen = []
    for begin in range(0, len(x), BATCH):
        part = slice(begin + RANK, begin + BATCH, SIZE)
        step(x_overflowing[part], y_overflowing[part])
        weights = np.concatenate([np.ravel(w) for w in model.get_weights()])
        seen.append([float(optimizer.dynamic_scale.numpy()), int(optimizer.iterations), *weights.tolist()])
    return seen


@check
def accumulating_fit() -> dict[str, float]:
    """Two epochs of 5 steps, reduced after every third."""
    model = tnt.Model(keras.Sequential([keras.Input((4,)), layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.01, gradient_accumulation_steps=3), "mse")
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
    return model.stats()


run(sys.argv[1])
