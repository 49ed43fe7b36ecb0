"""Metrics of the user's own, and what a model's own `compute_metrics` logs (checks of `trials`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages
from tarantella.keras.step import unwrapped_models
from trial_models import BATCH, LEGACY, SAMPLES, Subclassed, plain, squares

x = np.abs(np.random.default_rng(4).normal(size=(SAMPLES, 4))).astype(np.float32)
x[:BATCH] *= -1
y = (np.random.default_rng(5).random((SAMPLES, 3)) > 0.5).astype(np.float32)
logged = log_messages()


class Found(keras.metrics.Metric):
    """A count, whose result is its state."""

    def __init__(self) -> None:
        super().__init__(name="found")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(tf.reduce_sum(tf.cast((y_true > 0) & (y_pred > 0.5), tf.float32)))

    def result(self) -> Any:
        return self.count


class Several(Found):
    """Its result is a state among others."""

    def result(self) -> Any:
        return {"count": self.count, "root": tf.sqrt(tf.convert_to_tensor(self.count))}


class Largest(Found):
    """A maximum from zero on, which the negative outputs of the first batch do not change."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign(tf.maximum(self.count, tf.reduce_max(y_pred)))


class Never(Found):
    """Nothing changes its state."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.count.assign_add(0 * tf.reduce_max(y_pred))


class OwnSteps(Subclassed):
    """Logs results of a metric, under another name, and its state; in the test step other numbers."""

    def __init__(self, loss_of: Any) -> None:
        super().__init__(loss_of)
        self.found = Found()

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = self(data[0], training=True)
            loss = tf.reduce_mean(self.loss_of(data[1], outputs))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.found.update_state(data[1], outputs)
        return {"loss": loss, "result": self.found.result(), "state": self.found.count}

    def test_step(self, data: Any) -> Any:
        outputs = self(data[0], training=False)
        return {"error": tf.reduce_mean(tf.abs(data[1] - outputs)), "n": tf.cast(tf.shape(outputs)[0], tf.float32)}


class OwnMetrics(Subclassed):
    """Its `compute_metrics` logs and tracks other numbers."""

    def __init__(self, loss_of: Any) -> None:
        super().__init__(loss_of)
        self.found, self.late = Found(), keras.metrics.Sum(name="late")

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        self.found.update_state(y, y_pred)
        self.tracker.update_state(tf.reduce_sum(y))
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        more = {"result": self.found.result(), "sum": tf.reduce_sum(y_pred), "mean": tf.reduce_mean(tf.square(y_pred))}
        self.late.update_state(y_pred)
        return {**logs, **more, "late": self.late.result()}


class Deviations(Subclassed):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "deviation": tf.math.reduce_std(y_pred)}


def linear() -> Any:
    plain()
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_initializer="ones")])


def numbers(make: Callable[[], Any], own: bool, metrics: Callable[[], list[Any]] = list, **options: Any) -> dict[str, Any]:
    """The logs of each way to run the model. own: by tarantella."""
    model = tnt.Model(make(), **options) if own else make()
    model.compile(keras.optimizers.SGD(0.001), "mse", metrics=metrics() or None)
    few = 2 * BATCH + 1  # one rank alone has a sample of the last batch
    found = dict(model.fit(x[:few], y[:few], batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history)
    how = {"verbose": 0, "return_dict": True}
    for name, value in model.evaluate(x[:few], y[:few], batch_size=BATCH, **how).items():
        found[f"evaluated {name}"] = value
    for name, value in model.test_on_batch(x[:BATCH], y[:BATCH], return_dict=True).items():
        found[f"tested on batch {name}"] = value
    for name, value in model.train_on_batch(x[:BATCH], y[:BATCH], return_dict=True).items():
        found[f"on batch {name}"] = value
    return {name: np.asarray(value).ravel().tolist() for name, value in found.items()}


def both(make: Callable[[], Any], metrics: Callable[[], list[Any]] = list, **options: Any) -> list[Any]:
    logged.clear()
    ours = numbers(make, True, metrics, **options)
    said = [message for message in logged if "the metric" in message or "neither" in message]
    with unwrapped_models.internal_call():
        return [ours, numbers(make, False, metrics), said]


@check
def own_metrics() -> dict[str, Any]:
    """By all ranks, and by plain Keras, and what is said."""
    return {
        "state": both(linear, lambda: [Found()]),
        "states": both(linear, lambda: [Several()]),
        "state in a step": both(lambda: plain(OwnSteps, squares)),
        "unchanged maximum": both(linear, lambda: [Largest()]),
        "unchanged": both(linear, lambda: [Never()]),
        "compute_metrics": both(lambda: plain(OwnMetrics)),
        "deviation": both(lambda: plain(Deviations)),
        **({} if LEGACY else {"in shards": both(linear, lambda: [Several(), Never()], reproducible=4)}),
    }
