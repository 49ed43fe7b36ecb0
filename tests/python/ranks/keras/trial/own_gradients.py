"""Steps of the user's own that compute with their gradients, metrics that couple samples, and state that needs no samples."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from checks import check, log_messages, raised, run

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
SIZE = tnt.get_size()
SAMPLES, BATCH = 23, 7  # no batch can be divided equally, and the last one has too few samples for three ranks
numbers = np.random.default_rng(0)
x = numbers.normal(size=(SAMPLES, 4)).astype(np.float32)
y = (30 * x.sum(1, keepdims=True) + numbers.normal(size=(SAMPLES, 1))).astype(np.float32)  # the made-up ones are smaller
logging.getLogger("TNT_LIB").setLevel(logging.INFO)
logged = log_messages()


class Base(keras.Model):
    """kind: what its step does with its gradients."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.net = keras.Sequential([keras.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(1)])
        self.tracker = keras.metrics.Mean(name="loss")
        self.calls = tf.Variable(0, trainable=False)
        self.sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in self.net.trainable_variables]

    def call(self, inputs: Any) -> Any:
        return self.net(inputs)

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def gradients_of(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.net(data[0]) - data[1]))
        return loss, tape.gradient(loss, self.net.trainable_variables)

    def train_step(self, data: Any) -> Any:
        variables = self.net.trainable_variables
        if self.kind == "penalty":
            with tf.GradientTape() as outer:
                loss, grads = self.gradients_of(data)
                loss += 0.001 * tf.add_n([tf.reduce_sum(tf.square(g)) for g in grads])
            grads = outer.gradient(loss, variables)
        else:
            loss, grads = self.gradients_of(data)
        logs = {}
        if self.kind == "clip by value":
            grads = [tf.clip_by_value(g, -20.0, 20.0) for g in grads]
        if self.kind == "clip by norm":
            logs["norm"] = tf.linalg.global_norm(grads)
            grads, _ = tf.clip_by_global_norm(grads, 40.0)
        if self.kind == "sharpness":
            moved = [0.05 * g / tf.linalg.global_norm(grads) for g in grads]
            for variable, step in zip(variables, moved, strict=True):
                variable.assign_add(step)
            loss, grads = self.gradients_of(data)
            for variable, step in zip(variables, moved, strict=True):
                variable.assign_sub(step)
        if self.kind == "no optimizer":
            for variable, gradient in zip(variables, grads, strict=True):
                variable.assign_sub(0.001 * gradient)
        elif self.kind == "accumulation":
            self.accumulate(grads)
        else:
            self.optimizer.apply_gradients(zip(grads, variables, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result(), **logs}

    def accumulate(self, grads: Any) -> None:
        self.calls.assign_add(1)
        for total, gradient in zip(self.sums, grads, strict=True):
            total.assign_add(gradient / 2.0)
        tf.cond(tf.equal(self.calls % 2, 0), self.use_sums, lambda: None)

    def use_sums(self) -> None:
        self.optimizer.apply_gradients(zip(self.sums, self.net.trainable_variables, strict=True))
        for total in self.sums:
            total.assign(tf.zeros_like(total))


KINDS = ("penalty", "clip by value", "clip by norm", "sharpness", "no optimizer", "accumulation")


def weights_of(model: Any) -> Any:
    """All of them. Legacy Keras has the states of metrics among those of a model, which are each rank's own."""
    owners = [getattr(model, name) for name in ("net", "teacher") if hasattr(model, name)] or [model]
    return np.concatenate([np.asarray(weight).ravel() for owner in owners for weight in owner.get_weights()])


def trained(model: Any, how: Any = tnt.ParallelStrategy.DATA, optimizer: Any = None, **compiled: Any) -> dict[str, list[Any]]:
    model = tnt.Model(model, parallel_strategy=how)
    model.compile(optimizer or keras.optimizers.SGD(0.0005), **compiled)
    found = model.fit(
        x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, validation_data=(x, y) if compiled else None
    ).history
    return {
        **{name: np.asarray(v, float).tolist() for name, v in found.items()},
        "weights": weights_of(getattr(model, "model", model)).tolist(),
    }


def both(make: Any, **compiled: Any) -> list[dict[str, list[Any]]]:
    """On all ranks, and as plain Keras."""
    found = []
    for how in (tnt.ParallelStrategy.DATA, tnt.ParallelStrategy.NONE):
        keras.utils.set_random_seed(3)
        given = {name: value() if callable(value) else value for name, value in compiled.items()}
        found.append(trained(make(), how, **given))
    return found


@check
def gradients() -> dict[str, list[Any]]:
    return {kind: both(lambda kind=kind: Base(kind)) for kind in KINDS}


@check
def what_is_said() -> list[str]:
    logged.clear()
    trained(Base("clip by value"))
    return [message for message in logged if "computes with its gradients" in message]


@check
def does_not_go_together() -> dict[str, list[str]]:
    """With options that make gradients of a step wait for others."""
    found = {"reproducible": raised(reproducible_fit)} if SIZE == 2 else {}
    if not LEGACY:
        accumulating = keras.optimizers.SGD(0.01, gradient_accumulation_steps=2)
        found["gradient_accumulation_steps"] = raised(trained, Base("clip by value"), optimizer=accumulating)
    return found


def reproducible_fit() -> None:
    model = tnt.Model(Base("clip by value"), reproducible=4)
    model.compile(keras.optimizers.SGD(0.01))
    model.fit(x, y, batch_size=BATCH, verbose=0)


class Noisy(Base):
    """Adds noise to its gradients."""

    def train_step(self, data: Any) -> Any:
        loss, grads = self.gradients_of(data)
        grads = [g + tf.random.normal(tf.shape(g)) for g in grads]
        self.optimizer.apply_gradients(zip(grads, self.net.trainable_variables, strict=True))
        return {"loss": loss}


@check
def noise_in_gradients() -> bool:
    """Whether all ranks have the same weights."""
    weights = trained(Noisy("noise"))["weights"]
    return bool(np.array_equal(tnt.broadcast(np.asarray(weights)), weights))


# ------------------------------------------------------------------------------------------------------------ metrics


def rmse(wanted: Any, found: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(tf.square(wanted - found)))


def of_all(wanted: Any, found: Any) -> Any:
    """A mean, but one number for a batch."""
    return tf.reduce_mean(tf.abs(wanted - found))


def f1(wanted: Any, found: Any) -> Any:
    wanted, found = tf.cast(wanted > 0, tf.float32), tf.sigmoid(found)
    return 2 * tf.reduce_sum(wanted * found) / (tf.reduce_sum(wanted) + tf.reduce_sum(found))


class MeanOfBatches(keras.metrics.Metric):
    """Adds up a number of each batch."""

    def __init__(self) -> None:
        super().__init__(name="of_batches")
        self.total = self.add_weight(name="total", initializer="zeros")
        self.batches = self.add_weight(name="batches", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(rmse(y_true, y_pred))
        self.batches.assign_add(1.0)

    def result(self) -> Any:
        return self.total / self.batches


def net() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(5, activation="tanh"), layers.Dense(1)])


@check
def metrics() -> list[Any]:
    return both(net, loss="mae", metrics=lambda: [rmse, of_all, f1, MeanOfBatches(), "mse"])


# --------------------------------------------------------------------------------------------- state without samples


class WithTeacher(Base):
    """Has a moving average of its weights, and a layer that changes a weight in each step without looking at samples."""

    def __init__(self) -> None:
        super().__init__("teacher")
        self.teacher = net()
        self.teacher.set_weights(self.net.get_weights())
        self.teacher.trainable = False

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        for ours, theirs in zip(self.teacher.weights, self.net.weights, strict=True):
            ours.assign(0.5 * ours + 0.5 * theirs)
        return logs


def with_spectral_norm() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.SpectralNormalization(layers.Dense(5)), layers.Dense(1)])


@check
def state_without_samples() -> list[Any]:
    return [both(WithTeacher), both(with_spectral_norm, loss="mae")]


@check
def stateful_layers() -> list[str]:
    given = {"batch_input_shape": (6, 2, 4)} if LEGACY else {"batch_shape": (6, 2, 4)}
    inputs = [layers.InputLayer(**given)]
    model = tnt.Model(keras.Sequential([*inputs, layers.LSTM(3, stateful=True, name="memory"), layers.Dense(1)]))
    model.compile("sgd", "mse")
    return raised(model.fit, np.zeros((12, 2, 4)), np.zeros((12, 1)), batch_size=6, verbose=0)


run(sys.argv[1], *sys.argv[2:])
