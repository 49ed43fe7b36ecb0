"""Denoising diffusion: a normaliser that is adapted, a network of times, a moving average of its weights, a test step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, generator, normal, pixels, uniform, update

SIZE, EMA = 8, 0.9


class Sinusoids(layers.Layer):
    def call(self, variances: Any) -> Any:
        angles = variances * 6.28 * tf.exp(tf.linspace(0.0, 2.0, 4))
        return tf.concat([tf.sin(angles), tf.cos(angles)], -1)


def network() -> keras.Model:
    images, variances = keras.Input((SIZE, SIZE, 3)), keras.Input((1, 1, 1))
    times = layers.UpSampling2D(SIZE, interpolation="nearest")(Sinusoids()(variances))
    x = layers.Concatenate()([layers.Conv2D(4, 1)(images), times])
    skip = layers.Conv2D(4, 3, padding="same", activation="swish")(x)
    x = layers.AveragePooling2D(2)(skip)
    x = layers.UpSampling2D(2, interpolation="bilinear")(layers.Conv2D(4, 3, padding="same", activation="swish")(x))
    return keras.Model([images, variances], layers.Conv2D(3, 1, kernel_initializer="zeros")(layers.Concatenate()([x, skip])))


class Diffusion(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.normalizer, self.network, self.seeds = layers.Normalization(), network(), generator(6)
        self.ema_network = keras.models.clone_model(self.network)

    def compile(self, **kwargs: Any) -> None:
        super().compile(**kwargs)
        self.n_loss, self.i_loss = keras.metrics.Mean(name="n_loss"), keras.metrics.Mean(name="i_loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.n_loss, self.i_loss]

    def noised(self, images: Any) -> tuple[Any, Any, Any, Any]:
        images = self.normalizer(images, training=True)
        noises = normal(images, (SIZE, SIZE, 3), self.seeds)
        angles = 0.3 + 1.2 * uniform(images, (1, 1, 1), self.seeds)
        signal, noise = tf.cos(angles), tf.sin(angles)
        return images, noises, signal, noise

    def denoised(self, of: keras.Model, noisy: Any, signal: Any, noise: Any) -> tuple[Any, Any]:
        noises = of([noisy, noise**2])
        return noises, (noisy - noise * noises) / signal

    def train_step(self, images: Any) -> Any:
        images, noises, signal, noise = self.noised(images)
        with tf.GradientTape() as tape:
            found, found_images = self.denoised(self.network, signal * images + noise * noises, signal, noise)
            noise_loss = self.loss(noises, found)
            image_loss = self.loss(images, found_images)
        update(self.optimizer, tape, noise_loss, self.network.trainable_weights)
        self.n_loss.update_state(noise_loss)
        self.i_loss.update_state(image_loss)
        for weight, ema in zip(self.network.weights, self.ema_network.weights, strict=True):
            ema.assign(EMA * ema + (1 - EMA) * weight)
        return {m.name: m.result() for m in self.metrics}

    def test_step(self, images: Any) -> Any:
        images, noises, signal, noise = self.noised(images)
        found, found_images = self.denoised(self.ema_network, signal * images + noise * noises, signal, noise)
        self.n_loss.update_state(self.loss(noises, found))
        self.i_loss.update_state(self.loss(images, found_images))
        return {m.name: m.result() for m in self.metrics}


def train(wrap: Wrap) -> Trained:
    images = pixels(0, SAMPLES, SIZE, SIZE, 3)
    diffusion = Diffusion()
    diffusion.normalizer.adapt(images)
    model = wrap(diffusion)
    model.compile(
        optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=1e-4, epsilon=1e-3),
        loss=keras.losses.MeanAbsoluteError(),
    )
    return model, model.fit(batched(images), epochs=2, validation_data=batched(images[:10]), verbose=0).history


if __name__ == "__main__":
    as_script(train)
