"""Losses that couple samples where the first ones do not show it, and layers that do so in predictions (checks of `trials`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check
from trial_models import RANK, x, y

BATCH, KEPT = 16, 9  # more than a trial has samples
labels = np.where(np.arange(len(y)) % 3 == 2, -1.0, y.T).T.astype(np.float32)
labels[:8] = y[:8]  # the samples that a trial has are complete


def masked_mean(truth: Any, prediction: Any) -> Any:
    return tf.reduce_mean(tf.boolean_mask(tf.square(truth - prediction), truth >= 0))


def masked_ratio(truth: Any, prediction: Any) -> Any:
    there = tf.cast(truth >= 0, tf.float32)
    return tf.reduce_sum(there * tf.square(truth - prediction)) / (tf.reduce_sum(there) + 1e-7)


def hardest(truth: Any, prediction: Any) -> Any:
    each = tf.reduce_mean(tf.square(truth - prediction), -1)
    return tf.reduce_mean(tf.math.top_k(each, tf.minimum(tf.shape(each)[0], KEPT)).values)


class Balanced(keras.layers.Layer):
    """Adds a product of means over the batch, as mixtures of experts do."""

    def call(self, inputs: Any) -> Any:
        means = tf.reduce_mean(tf.nn.softmax(inputs), 0)
        self.add_loss(0.3 * tf.reduce_sum(tf.square(means)))
        return inputs


def numbers(loss: Any, middle: Any = None, **options: Any) -> list[Any]:
    """The losses, the weights and the predictions."""
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    layers = [keras.Input((4,)), keras.layers.Dense(3), *([] if middle is None else [middle()])]
    model = tnt.Model(keras.Sequential(layers), **options)
    model.compile(keras.optimizers.SGD(0.1), loss)
    history = model.fit(x, labels, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, validation_data=(x, labels)).history
    weights = [np.asarray(variable).tolist() for variable in model.trainable_variables]
    return [*history.values(), *weights, model.predict(x, verbose=0).tolist(), model.predict_on_batch(x[:5]).tolist()]


@check
def rare() -> dict[str, Any]:
    """On all ranks, and on rank 0 as plain Keras, too."""
    found = {}
    for name, how in {
        "masked_mean": (masked_mean,),
        "masked_ratio": (masked_ratio,),
        "hardest": (hardest,),
        "balanced": ("mse", Balanced),
    }.items():
        plain = None if RANK else numbers(*how, parallel_strategy=tnt.ParallelStrategy.NONE)
        found[name] = [numbers(*how), plain]
    return found
