"""Losses, models and trainings of the checks of trials."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
RANK = tnt.get_rank()
SAMPLES, BATCH = 20, 7  # on 2 and 3 ranks no batch can be divided equally
numbers = np.random.default_rng(0)
x = numbers.normal(size=(SAMPLES, 4)).astype(np.float32) * np.linspace(0.2, 2, SAMPLES, dtype=np.float32)[:, np.newaxis]
y = (np.abs(x[:, :3]) / 4).astype(np.float32)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def squares(wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(tf.square(wanted - found), -1)


def reduce_sum(wanted: Any, found: Any) -> Any:
    return tf.reduce_sum(tf.square(wanted - found))


def tensordot(wanted: Any, found: Any) -> Any:
    return tf.tensordot(wanted - found, wanted - found, 2)


def ratio(wanted: Any, found: Any) -> Any:
    counted = tf.cast(wanted > 0.03, tf.float32)
    return tf.reduce_sum(tf.square(wanted - found) * counted) / tf.reduce_sum(counted)


def largest(wanted: Any, found: Any) -> Any:
    return tf.reduce_max(tf.square(wanted - found))


def masked(wanted: Any, found: Any) -> Any:
    """The mean over the words that are not 0, which are not as many in all sentences."""
    of_words = keras.losses.sparse_categorical_crossentropy(wanted, found)
    counted = tf.cast(wanted > 0, of_words.dtype)
    return tf.reduce_sum(of_words * counted) / tf.reduce_sum(counted)


def median(wanted: Any, found: Any) -> Any:
    each = tf.sort(tf.reshape(tf.square(wanted - found), [-1]))
    return each[tf.size(each) // 2]


def contrastive(wanted: Any, found: Any) -> Any:
    """Supervised: samples of the same class attract each other."""
    rows = tf.math.l2_normalize(found, 1)
    alike = tf.cast(tf.argmax(wanted, 1)[:, tf.newaxis] == tf.argmax(wanted, 1), tf.float32)
    logits = tf.matmul(rows, rows, transpose_b=True) / 0.5
    return -tf.reduce_mean(tf.reduce_sum(alike * tf.nn.log_softmax(logits), 1) / tf.reduce_sum(alike, 1))


def paired(wanted: Any, found: Any) -> Any:
    """Compares each sample with another one, which is drawn."""
    count = tf.shape(found)[0]
    order = tf.random.experimental.index_shuffle(tf.range(count), tf.constant([3, 5], tf.uint32), count - 1)
    return tf.reduce_mean(tf.square(wanted - tf.gather(found, order)))


def gathered(wanted: Any, found: Any) -> Any:
    return contrastive(tnt.all_gather(wanted), tnt.all_gather(found))


def noisy(wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(tf.square(wanted - found * np.random.random()))


def noisy_sum(wanted: Any, found: Any) -> Any:
    return tf.reduce_sum(tf.square(wanted - found * tf.random.uniform(tf.shape(found))))


def shuffled(wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.random.shuffle(wanted) - found))


def gamma(wanted: Any, found: Any) -> Any:
    return tf.reduce_mean(tf.square(wanted - found)) * tf.reduce_mean(tf.random.gamma((3,), 1.0))


class Subclassed(keras.Model):
    """A model whose step's loss is a function of its own."""

    def __init__(self, loss_of: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.loss_of = loss_of
        self.out = keras.layers.Dense(3)
        self.noise = keras.layers.Dropout(0.5)
        self.steps = tf.Variable(0)
        self.tracker = keras.metrics.Mean(name="tracker")

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.out(inputs)


class OwnStep(Subclassed):
    def train_step(self, data: Any) -> Any:
        self.steps.assign_add(1)
        with tf.GradientTape() as tape:
            loss = self.loss_of(data[1], self(data[0], training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        self.tracker.update_state(loss)
        return {"tracker": self.tracker.result(), "now": tf.reduce_sum(loss)}

    def test_step(self, data: Any) -> Any:
        loss = self.loss_of(data[1], self(data[0]))
        self.tracker.update_state(loss)
        return {"tracker": self.tracker.result(), "now": tf.reduce_sum(loss)}


class WithDropout(OwnStep):
    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.out(self.noise(inputs, training=training))


class OwnLoss(Subclassed):
    def compute_loss(self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **how: Any) -> Any:
        loss = self.loss_of(y, y_pred)
        if LEGACY:
            self.tracker.update_state(loss)
        return loss


def plain(kind: type[Any] | None = None, loss: Any = None) -> Any:
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    if kind is not None:
        return kind(loss)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="sigmoid")])


def trained(loss: Any, kind: type[Any] | None = None, eagerly: bool = True, **options: Any) -> dict[str, Any]:
    """Losses in training and in validation, and the weights."""
    model = tnt.Model(plain(kind, loss), **options)
    model.compile(keras.optimizers.SGD(0.02), None if kind else loss, run_eagerly=eagerly)
    history = model.fit(data, epochs=1, verbose=0, validation_data=data).history
    weights = np.concatenate([np.asarray(v).ravel() for v in model.trainable_variables]).tolist()
    return {**{name: [float(v) for v in values] for name, values in history.items()}, "weights": weights}


def both(loss: Any, truth: Any = None, **how: Any) -> list[Any]:
    """On all ranks, and on rank 0 as plain Keras, too."""
    serial = {name: how[name] for name in ("kind", "eagerly") if name in how}
    ours = trained(loss, **how)
    return [ours, None if RANK else trained(truth or loss, **serial, parallel_strategy=tnt.ParallelStrategy.NONE)]
