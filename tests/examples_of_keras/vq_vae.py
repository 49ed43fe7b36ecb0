"""A VQ-VAE: a table of codes, a layer that adds two losses, gradients that go straight through."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, pixels, update

CODES, WIDTH = 5, 3


class VectorQuantizer(layers.Layer):
    def __init__(self, beta: float = 0.25) -> None:
        super().__init__()
        self.beta = beta

    def build(self, shape: Any) -> None:
        how = {"initializer": keras.initializers.RandomUniform(-0.5, 0.5, seed=1), "trainable": True}
        self.codes = self.add_weight(shape=(WIDTH, CODES), name="codes", **how)
        super().build(shape)

    def call(self, x: Any) -> Any:
        flat = tf.reshape(x, [-1, WIDTH])
        distances = tf.reduce_sum(flat**2, 1, keepdims=True) + tf.reduce_sum(self.codes**2, 0) - 2 * tf.matmul(flat, self.codes)
        nearest = tf.one_hot(tf.argmin(distances, axis=1), CODES)
        quantized = tf.reshape(tf.matmul(nearest, self.codes, transpose_b=True), tf.shape(x))
        commitment = tf.reduce_mean((tf.stop_gradient(quantized) - x) ** 2)
        self.add_loss(self.beta * commitment + tf.reduce_mean((quantized - tf.stop_gradient(x)) ** 2))
        return x + tf.stop_gradient(quantized - x)


def network() -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(inputs)
    x = VectorQuantizer()(layers.Conv2D(WIDTH, 1, padding="same")(x))
    x = layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")(x)
    return keras.Model(inputs, layers.Conv2DTranspose(1, 3, padding="same")(x))


class Trainer(keras.Model):
    def __init__(self, train_variance: float) -> None:
        super().__init__()
        self.train_variance, self.vqvae = train_variance, network()
        self.trackers = [keras.metrics.Mean(name=name) for name in ("loss", "reconstruction_loss", "vqvae_loss")]

    @property
    def metrics(self) -> list[Any]:
        return self.trackers

    def train_step(self, x: Any) -> Any:
        with tf.GradientTape() as tape:
            reconstructions = self.vqvae(x)
            reconstruction = tf.reduce_mean((x - reconstructions) ** 2) / self.train_variance
            total = reconstruction + sum(self.vqvae.losses)
        update(self.optimizer, tape, total, self.vqvae.trainable_variables)
        for tracker, loss in zip(self.trackers, (total, reconstruction, sum(self.vqvae.losses)), strict=True):
            tracker.update_state(loss)
        return {tracker.name: tracker.result() for tracker in self.trackers}


def train(wrap: Wrap) -> Trained:
    images = pixels(0, SAMPLES, 8, 8, 1) - 0.5
    model = wrap(Trainer(float(images.var())))
    model.compile(optimizer=keras.optimizers.Adam(epsilon=1e-3))
    return model, model.fit(images, epochs=2, batch_size=BATCH, verbose=0).history


if __name__ == "__main__":
    as_script(train)
