"""Training on several ranks with parallel maps that draw random numbers, and with serial ones."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages, run

messages = log_messages()
x = np.random.default_rng(0).normal(size=(256, 6, 6, 1)).astype(np.float32)


def flipped(image: Any, label: Any) -> Any:
    image = image + tf.reduce_mean(tf.linalg.expm(tf.random.stateless_uniform([40, 40], [1, 2]))) * 0.0  # some work
    return tf.image.random_flip_left_right(image), label


def losses_with(kind: str, calls: int | None) -> list[float]:
    keras.utils.set_random_seed(1)
    data = tf.data.Dataset.from_tensor_slices((x, x.mean((1, 2, 3))))
    if kind == "samples":
        data = data.map(flipped, calls).batch(16).prefetch(2)
    else:
        layer = keras.layers.RandomFlip(seed=1)
        data = data.batch(16).map(lambda a, b: (layer(a, training=True), b), calls)
    model = tnt.Model(keras.Sequential([keras.Input((6, 6, 1)), keras.layers.Flatten(), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    history = model.fit(data, epochs=2, validation_data=data, verbose=0).history
    return [float(v) for v in (*history["loss"], *history["val_loss"])]


@check
def losses() -> dict[str, list[list[float]]]:
    return {kind: [losses_with(kind, calls) for calls in (4, None)] for kind in ("samples", "batches")}


@check
def said() -> list[str]:
    return messages


run(sys.argv[1])
