"""A variational autoencoder: a sampling layer, images as the whole batch, one step for three tracked losses."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, generator, normal, pixels, update

LATENT = 2


class Sampling(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seeds = generator(5)

    def call(self, inputs: Any) -> Any:
        mean, log_var = inputs
        return mean + tf.exp(0.5 * log_var) * normal(mean, (LATENT,), self.seeds)


def encoder() -> keras.Model:
    inputs = keras.Input((8, 8, 1))
    x = layers.Flatten()(layers.Conv2D(4, 3, activation="relu", strides=2, padding="same")(inputs))
    x = layers.Dense(8, activation="relu")(x)
    mean, log_var = layers.Dense(LATENT, name="mean")(x), layers.Dense(LATENT, name="log_var")(x)
    return keras.Model(inputs, [mean, log_var, Sampling()([mean, log_var])], name="encoder")


def decoder() -> keras.Model:
    begin = [keras.Input((LATENT,)), layers.Dense(64, activation="relu"), layers.Reshape((4, 4, 4))]
    upper = [layers.Conv2DTranspose(4, 3, activation="relu", strides=2, padding="same")]
    return keras.Sequential([*begin, *upper, layers.Conv2DTranspose(1, 3, activation="sigmoid", padding="same")])


class Vae(keras.Model):
    def __init__(self, encoder: keras.Model, decoder: keras.Model) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.trackers = [keras.metrics.Mean(name=name) for name in ("loss", "reconstruction_loss", "kl_loss")]

    @property
    def metrics(self) -> list[Any]:
        return self.trackers

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            errors = keras.losses.binary_crossentropy(data, self.decoder(z))
            reconstruction = tf.reduce_mean(tf.reduce_sum(errors, axis=(1, 2)))
            kl = tf.reduce_mean(tf.reduce_sum(-0.5 * (1 + log_var - tf.square(mean) - tf.exp(log_var)), axis=1))
            total = reconstruction + kl
        update(self.optimizer, tape, total, self.trainable_weights)
        for tracker, loss in zip(self.trackers, (total, reconstruction, kl), strict=True):
            tracker.update_state(loss)
        return {tracker.name: tracker.result() for tracker in self.trackers}


def train(wrap: Wrap) -> Trained:
    images = pixels(0, SAMPLES, 8, 8, 1)
    model = wrap(Vae(encoder(), decoder()))
    model.compile(optimizer=keras.optimizers.Adam())
    history = model.fit(batched(images), epochs=2, verbose=0).history
    mean, _, _ = model.encoder(images[:5])
    return model, {**history, "latent": mean}


if __name__ == "__main__":
    as_script(train)
