"""Checks of the calls that custom training loops must not make."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised
from loop_runs import RANK, SIZE, away, distributed, loss_of, make, serial, with_apply, x, y


def apply_reduced() -> None:
    model, optimizer = make(), tnt.optimizers.Optimizer(keras.optimizers.SGD())
    with tnt.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_of(model, x, y)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


def apply_without_sync() -> None:
    model, optimizer = make(), tnt.optimizers.Optimizer(keras.optimizers.SGD())
    with tnt.no_sync():
        optimizer.apply([tf.ones(v.shape) for v in model.trainable_variables], model.trainable_variables)


def gradient_of(sources: Any, **how: Any) -> Any:
    with tnt.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(tf.Variable(1.0))
    return tape.gradient(loss, sources, **how)


def weighted_without_sync() -> None:
    with tnt.no_sync():
        gradient_of([], weight=1)


def traced_without_sync() -> None:
    variable = tf.Variable(1.0)
    with tnt.no_sync():
        tf.function(lambda: gradient_of([variable]))()


class TapeInside(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        with tnt.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = loss_of(self, *data)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class OptimizerInside(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(self, *data)
        self.own.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def fit(cls: Any = keras.Sequential, optimizer: Any = "sgd", own: Any = None) -> None:
    model = cls([keras.Input((4,)), layers.Dense(2)])
    model.own = own
    wrapped = tnt.Model(model)
    wrapped.compile(optimizer, "mse")
    wrapped.fit(x, y, verbose=0)


def mismatch(graph: bool) -> None:
    variables = [tf.Variable(np.ones(3 + (RANK == 1 and i == 1)), name=f"v{i}") for i in range(3)]
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(v) for v in variables])
    reduce: Any = lambda: tnt.DistributedGradientTape(tape).gradient(loss, variables)  # noqa: E731
    (tf.function(reduce) if graph else reduce)()


def sparse_mismatch() -> None:
    table = tf.Variable(np.ones((4096 + 8 * RANK, 8), np.float32), name="table")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(table, [1]))
    tnt.DistributedGradientTape(tape).gradient(loss, [table])


@check
def refused() -> dict[str, list[str]]:
    ours = tnt.optimizers.Optimizer
    sgd = keras.optimizers.SGD
    return {
        "reduced already": raised(apply_reduced),
        "reduced already, in a graph": raised(tf.function(apply_reduced)),
        "applied inside of no_sync": raised(apply_without_sync),
        "weighted inside of no_sync": raised(weighted_without_sync),
        "no_sync around a function": raised(traced_without_sync),
        "tape in a model's step": raised(fit, TapeInside),
        "optimizer in a model's step": raised(fit, OptimizerInside, own=ours(sgd())),
        "optimizer of a model": raised(fit, optimizer=ours(sgd())),
        "optimizer inside of a model's": raised(fit, optimizer=keras.optimizers.LossScaleOptimizer(ours(sgd()))),
        "other variables": raised(mismatch, False),
        "other variables, in a graph": raised(mismatch, True),
        "other tables": raised(sparse_mismatch),
        "no tape": raised(tnt.DistributedGradientTape, None),
        "no optimizer": raised(ours, "sgd"),
        "no variable": raised(gradient_of, [tf.constant(1.0)]),
        "two weights": raised(gradient_of, [tf.Variable(1.0)], weight=1, samples=2),
        "jacobian": raised(lambda: tnt.DistributedGradientTape(tf.GradientTape()).jacobian),
        "nothing to broadcast to": raised(tnt.broadcast_variables, [np.ones(3)]),
        "no such root": raised(tnt.broadcast_variables, [], root=SIZE),
        "text": raised(tnt.all_reduce, tf.constant("a")),
        "no such operation": raised(tnt.all_reduce, tf.constant(1.0), "mean"),
        "variables unknown": raised(ours(sgd(gradient_accumulation_steps=2)).apply, [tf.constant(1.0)]),
    }


@check
def the_job_goes_on() -> list[float]:
    return away(distributed(with_apply, keras.optimizers.Adam(0.01), True), serial(keras.optimizers.Adam(0.01)))
