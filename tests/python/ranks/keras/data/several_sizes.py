"""Batches whose tensors have several sizes, on several ranks and in plain Keras: labelled and unlabelled samples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
messages = log_messages()


def samples(number: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(number, 6)).astype(np.float32)


def labelled(number: int, batch: int, **how: Any) -> tf.data.Dataset:
    x = samples(number, 1)
    return tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(batch, **how)


def unlabelled(number: int, batch: int, **how: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(samples(number, 2)).batch(batch, **how)


class SemiSupervised(keras.Model):
    """A mean over labelled samples and one over others; which come first does not matter."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(1)
        self.tracker = keras.metrics.Mean(name="tracker")
        self.error = keras.metrics.MeanSquaredError(name="error")

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker, self.error]

    def losses_of(self, data: Any) -> tuple[Any, Any]:
        (x, y), others = data if isinstance(data[0], tuple) else data[::-1]
        predicted = self(x)
        self.error.update_state(y, predicted)
        loss = tf.reduce_mean(tf.square(predicted - y)) + 0.5 * tf.reduce_mean(tf.square(self(others)))
        self.tracker.update_state(loss)
        return loss, others

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss, others = self.losses_of(data)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"tracker": self.tracker.result(), "error": self.error.result(), "others": tf.reduce_mean(others)}

    def test_step(self, data: Any) -> Any:
        self.losses_of(data)
        return {"tracker": self.tracker.result(), "error": self.error.result()}


class TwoViews(keras.Model):
    """Pulls the two views of each sample together: sample i and sample i + B of a batch of B pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.project = keras.layers.Dense(3)

    def call(self, x: Any) -> Any:
        return self.project(x)

    def train_step(self, data: Any) -> Any:
        x, views = data
        with tf.GradientTape() as tape:
            first, second = tf.split(self(views), 2)
            loss = tf.reduce_mean(tf.square(first - second)) + tf.reduce_mean(tf.square(self(x) - first - 1.0))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def with_views(x: Any) -> Any:
    return x, tf.concat([x, x * x], 0)


def trained(model: Any, wrap: Callable[[Any], Any], dataset: tf.data.Dataset, **how: Any) -> list[list[float]]:
    keras.utils.set_random_seed(4)
    model = wrap(model())
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(dataset, epochs=2, verbose=0, **how).history
    weights = np.concatenate([np.ravel(w) for w in model.trainable_variables])
    tested = model.evaluate(dataset, verbose=0) if model.__class__ is SemiSupervised else 0.0
    return [[float(v) for key in sorted(history) for v in history[key]], weights.tolist(), np.ravel(tested).tolist()]


def plain(model: Any) -> Any:
    return tnt.Model(model, tnt.ParallelStrategy.NONE)


def compared(dataset: tf.data.Dataset, model: Any = SemiSupervised, wrap: Any = tnt.Model) -> list[Any]:
    """What all ranks find together, and what plain Keras finds on this one."""
    return [trained(model, wrap, dataset), trained(model, plain, dataset)]


@check
def zipped() -> dict[str, list[Any]]:
    together = tf.data.Dataset.zip
    drop = {"drop_remainder": True}
    return {
        "unknown sizes": compared(together((labelled(20, 5), unlabelled(80, 20))).prefetch(2)),
        "the larger first": compared(together((unlabelled(80, 20, **drop), labelled(20, 5, **drop)))),
        "a shorter last batch": compared(together((labelled(23, 5), unlabelled(92, 20)))),
        "more ranks than groups": compared(together((unlabelled(14, 7, **drop), labelled(8, 4, **drop)))),
    }


@check
def two_views() -> list[Any]:
    return compared(unlabelled(20, 9).map(with_views), TwoViews)


@check
def shards() -> list[Any]:
    """`reproducible`: two shards for each of 2 ranks, the same shards on 3."""
    wrap = lambda model: tnt.Model(model, reproducible=4 if SIZE == 2 else None)  # noqa: E731
    return compared(tf.data.Dataset.zip((labelled(20, 6), unlabelled(80, 18))), wrap=wrap)


@check
def idle_ranks() -> list[str]:
    return [text for text in messages if "nothing to do" in text]


@check
def own_batches() -> list[Any]:
    """Of the same sizes on all ranks they may have several; else one weight cannot be right for both."""
    whole = tf.data.Dataset.zip((labelled(4 * SIZE, 2 * SIZE), unlabelled(12 * SIZE, 6 * SIZE)))
    mine = [labelled(4 * SIZE, 1).shard(SIZE, RANK), unlabelled(12 * SIZE, 1).shard(SIZE, RANK)]
    parts = tf.data.Dataset.zip((mine[0].unbatch().batch(2), mine[1].unbatch().batch(6)))
    alike = [trained(SemiSupervised, plain, whole)[:2], _fit_own(parts)]
    other = tf.data.Dataset.zip((labelled(8, 4), unlabelled(20, 4 + 2 * RANK)))
    return [*alike, raised(_fit_own, other)]


def _fit_own(dataset: tf.data.Dataset) -> list[list[float]]:
    keras.utils.set_random_seed(4)
    model = tnt.Model(SemiSupervised())
    model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(dataset, epochs=2, verbose=0, tnt_distribute_dataset=False).history
    weights = np.concatenate([np.ravel(w) for w in model.trainable_variables])
    return [[float(v) for key in sorted(history) for v in history[key]], weights.tolist()]


@check
def predicted() -> list[Any]:
    """A row for each sample of the first input, where the ranks divide both sizes; else the order is not known."""
    first, second = keras.Input((6,)), keras.Input((6,))
    model = tnt.Model(keras.Model([first, second], keras.layers.Lambda(lambda pair: pair[0] * 2.0)([first, second])))
    divided = tf.data.Dataset.zip((unlabelled(2 * SIZE, 2 * SIZE), unlabelled(6 * SIZE, 6 * SIZE)))
    refused = tf.data.Dataset.zip((unlabelled(21, 21), unlabelled(7, 7)))
    batches = lambda dataset: dataset.map(lambda a, b: ((a, b),))  # noqa: E731
    doubled = model.predict(batches(divided), verbose=0)
    return [bool(np.array_equal(doubled, 2 * samples(2 * SIZE, 2))), raised(model.predict, batches(refused), verbose=0)]


run(sys.argv[1])
