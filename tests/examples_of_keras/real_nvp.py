"""A normalising flow: masks, a list of coupling networks with two outputs, regularizers, the log-likelihood as the loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, regularizers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, numbers, update


def coupling() -> keras.Model:
    inputs = keras.Input((2,))
    outputs = []
    for activation in ("linear", "tanh"):
        x = layers.Dense(8, activation="relu", kernel_regularizer=regularizers.l2(0.01))(inputs)
        outputs.append(layers.Dense(2, activation=activation, kernel_regularizer=regularizers.l2(0.01))(x))
    return keras.Model(inputs, outputs)


class RealNvp(keras.Model):
    def __init__(self, layers_count: int) -> None:
        super().__init__()
        self.masks = np.array([[0, 1], [1, 0]] * (layers_count // 2), np.float32)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.couplings = [coupling() for _ in range(layers_count)]

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_tracker]

    def call(self, x: Any) -> Any:
        log_det = 0.0
        for mask, network in zip(self.masks, self.couplings, strict=True):
            shift, scale = (part * (1 - mask) for part in network(x * mask))
            log_det += tf.reduce_sum(scale, 1)
            x = x * mask + (1 - mask) * (x * tf.exp(scale) + shift)
        return x, log_det

    def log_loss(self, data: Any) -> Any:
        y, log_det = self(data)
        likelihood = -0.5 * tf.reduce_sum(tf.square(y), 1) - np.log(2 * np.pi) + log_det
        return -tf.reduce_mean(likelihood)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.log_loss(data)
        update(self.optimizer, tape, loss, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data: Any) -> Any:
        self.loss_tracker.update_state(self.log_loss(data))
        return {"loss": self.loss_tracker.result()}


def train(wrap: Wrap) -> Trained:
    model = wrap(RealNvp(4))
    model.compile(optimizer=keras.optimizers.Adam(1e-3))
    history = model.fit(numbers(0, SAMPLES, 2), batch_size=BATCH, epochs=2, verbose=0, validation_split=0.2).history
    return model, history


if __name__ == "__main__":
    as_script(train)
