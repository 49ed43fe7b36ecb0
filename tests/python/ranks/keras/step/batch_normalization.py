"""Batches of 3 and 1 samples on 4 ranks with BatchNormalization: some ranks have no sample in a step, rank 3 never has one."""

from __future__ import annotations

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, run

SAMPLES, BATCH, EPOCHS, MOMENTUM = 13, 3, 2, 0.8
x = np.random.default_rng(0).normal(3.0, 2.0, size=(SAMPLES, 2)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def target(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    """Its mean over an epoch is that of y, if every sample is counted once."""
    return y_true[:, 0]


keras.utils.set_random_seed(1)
normalization = layers.BatchNormalization(momentum=MOMENTUM)
model = tnt.Model(keras.Sequential([keras.Input((2,)), normalization, layers.Dense(1)]))
model.compile(keras.optimizers.SGD(0.01), "mse", metrics=[target, "mae"])


@check
def statistics() -> list[list[float]]:
    """The moving mean and variance after training."""
    statistics.logs = model.fit(dataset, epochs=EPOCHS, verbose=0).history
    return [np.asarray(v).tolist() for v in (normalization.moving_mean, normalization.moving_variance)]


@check
def trained_weights() -> list[list[float]]:
    return [np.asarray(w).ravel().tolist() for w in model.get_weights()]


@check
def mean_target() -> list[float]:
    return [*statistics.logs["target"], float(y.mean())]


@check
def evaluation() -> list[dict[str, float]]:
    """By all ranks, and by this one alone."""
    together = model.evaluate(dataset, return_dict=True, verbose=0)
    return [together, model.model.evaluate(dataset, return_dict=True, verbose=0)]


@check
def data() -> list[list[float]]:
    return x.tolist()


run(sys.argv[1])
