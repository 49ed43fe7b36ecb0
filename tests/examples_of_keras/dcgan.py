"""A DCGAN: two optimizers, noise that the step draws, noisy labels, a callback that makes images."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, batched, generator, normal, numbers, pixels, uniform, update

LATENT = 4


def discriminator() -> keras.Model:
    begin = [keras.Input((8, 8, 3)), layers.Conv2D(4, 4, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    return keras.Sequential(
        [*begin, layers.Flatten(), layers.Dropout(NO_DROPOUT), layers.Dense(1, activation="sigmoid")], name="discriminator"
    )


def maker() -> keras.Model:
    begin = [keras.Input((LATENT,)), layers.Dense(2 * 2 * 4), layers.Reshape((2, 2, 4))]
    middle = [layers.Conv2DTranspose(4, 4, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    upper = [layers.Conv2DTranspose(4, 4, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    return keras.Sequential([*begin, *middle, *upper, layers.Conv2D(3, 5, padding="same", activation="sigmoid")])


class Gan(keras.Model):
    def __init__(self, discriminator: keras.Model, generator_network: keras.Model) -> None:
        super().__init__()
        self.discriminator, self.generator = discriminator, generator_network
        self.seeds = generator(7)

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_metric, self.g_metric = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.d_metric, self.g_metric]

    def train_step(self, real: Any) -> Any:
        fake = self.generator(normal(real, (LATENT,), self.seeds))
        combined = tf.concat([fake, real], 0)
        ones = tf.ones((tf.shape(real)[0], 1))
        noise = tf.concat([uniform(real, (1,), self.seeds), uniform(real, (1,), self.seeds)], 0)
        labels = tf.concat([ones, tf.zeros_like(ones)], 0) + 0.05 * noise
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(combined))
        update(self.d_optimizer, tape, d_loss, self.discriminator.trainable_weights)
        points = normal(real, (LATENT,), self.seeds)
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.zeros_like(ones), self.discriminator(self.generator(points)))
        update(self.g_optimizer, tape, g_loss, self.generator.trainable_weights)
        self.d_metric.update_state(d_loss)
        self.g_metric.update_state(g_loss)
        return {"d_loss": self.d_metric.result(), "g_loss": self.g_metric.result()}


class Images(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.images = self.model.generator(numbers(9, 3, LATENT))


def train(wrap: Wrap) -> Trained:
    model = wrap(Gan(discriminator(), maker()))
    model.compile(
        keras.optimizers.Adam(1e-4, epsilon=1e-4), keras.optimizers.Adam(1e-4, epsilon=1e-4), keras.losses.BinaryCrossentropy()
    )
    images = Images()
    history = model.fit(batched(pixels(0, SAMPLES, 8, 8, 3)), epochs=2, callbacks=[images], verbose=0).history
    return model, {**history, "images": images.images}


if __name__ == "__main__":
    as_script(train)
