"""A network that gives a distribution: layers with noise in their weights, which add a divergence to the loss, a likelihood."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from example import LEGACY, SAMPLES, Trained, Wrap, as_script, batched, generator, numbers


class VariationalDense(layers.Layer):
    """All samples of a batch have the same weights: the noise is that of the batch."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.units, self.seeds = units, generator(8)

    def build(self, shape: Any) -> None:
        shape, small = (shape[-1], self.units), keras.initializers.Constant(-3.0)
        self.mean = self.add_weight(shape=shape, initializer="glorot_uniform", name="mean")
        self.spread = self.add_weight(shape=shape, initializer=small, name="spread")
        self.built = True

    def call(self, x: Any) -> Any:
        with tnt.same_noise():
            noise = self.seeds.normal(self.mean.shape) if LEGACY else keras.random.normal(self.mean.shape, seed=self.seeds)
        spread = tf.nn.softplus(tf.convert_to_tensor(self.spread))
        mean = tf.convert_to_tensor(self.mean)
        self.add_loss(tf.reduce_mean(0.5 * (mean**2 + spread**2 - 1.0) - tf.math.log(spread)) / SAMPLES)
        return tf.matmul(x, mean + spread * noise)


def likelihood(y: Any, parameters: Any) -> Any:
    mean, scale = parameters[:, :1], 1e-3 + tf.nn.softplus(parameters[:, 1:])
    return 0.5 * tf.square((y - mean) / scale) + tf.math.log(scale) + 0.5 * np.log(2 * np.pi)


def train(wrap: Wrap) -> Trained:
    x, y = {name: numbers(i, SAMPLES, 1) for i, name in enumerate(("acidity", "sugar"))}, numbers(2, SAMPLES, 1)
    inputs = {name: keras.Input((1,), name=name) for name in x}
    joined = layers.BatchNormalization(synchronized=True)(layers.concatenate(list(inputs.values())))
    hidden = layers.Activation("sigmoid")(VariationalDense(4)(joined))
    model = wrap(keras.Model(inputs, layers.Dense(2)(hidden)))
    model.compile(optimizer=keras.optimizers.RMSprop(learning_rate=1e-3, epsilon=1e-3), loss=likelihood)
    return model, model.fit(batched(x, y), epochs=2, validation_data=batched(x, y), verbose=0).history


if __name__ == "__main__":
    as_script(train)
