"""A Wasserstein GAN: several critic steps for one of the generator, a penalty on the gradient, losses given to `compile`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, generator, normal, pixels, uniform, update

LATENT, CRITIC_STEPS = 4, 2


def networks() -> tuple[keras.Model, keras.Model]:
    begin = [keras.Input((8, 8, 1)), layers.ZeroPadding2D(2), layers.Conv2D(4, 5, strides=2, use_bias=True)]
    critic = keras.Sequential([*begin, layers.LeakyReLU(0.2), layers.Flatten(), layers.Dense(1)], name="critic")
    begin = [keras.Input((LATENT,)), layers.Dense(4 * 4 * 4, use_bias=False), layers.BatchNormalization(synchronized=True)]
    upper = [layers.LeakyReLU(0.2), layers.Reshape((4, 4, 4)), layers.UpSampling2D(2), layers.Cropping2D((0, 0))]
    return critic, keras.Sequential([*begin, *upper, layers.Conv2D(1, 3, padding="same", activation="tanh")], name="generator")


class Wgan(keras.Model):
    def __init__(self, critic: keras.Model, maker: keras.Model, gp_weight: float = 10.0) -> None:
        super().__init__()
        self.critic, self.generator, self.gp_weight, self.seeds = critic, maker, gp_weight, generator(2)

    def compile(self, d_optimizer: Any, g_optimizer: Any, d_loss_fn: Any, g_loss_fn: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer, self.d_loss_fn, self.g_loss_fn = d_optimizer, g_optimizer, d_loss_fn, g_loss_fn

    def gradient_penalty(self, real: Any, fake: Any) -> Any:
        between = real + uniform(real, (1, 1, 1), self.seeds) * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(between)
            scores = self.critic(between, training=True)
        gradients = tape.gradient(scores, [between])[0]
        return tf.reduce_mean((tf.sqrt(tf.reduce_sum(tf.square(gradients), axis=[1, 2, 3])) - 1.0) ** 2)

    def train_step(self, real: Any) -> Any:
        if isinstance(real, tuple):
            real = real[0]
        for _ in range(CRITIC_STEPS):
            points = normal(real, (LATENT,), self.seeds)
            with tf.GradientTape() as tape:
                fake = self.generator(points, training=True)
                cost = self.d_loss_fn(self.critic(real, training=True), self.critic(fake, training=True))
                d_loss = cost + self.gp_weight * self.gradient_penalty(real, fake)
            update(self.d_optimizer, tape, d_loss, self.critic.trainable_variables)
        points = normal(real, (LATENT,), self.seeds)
        with tf.GradientTape() as tape:
            g_loss = self.g_loss_fn(self.critic(self.generator(points, training=True), training=True))
        update(self.g_optimizer, tape, g_loss, self.generator.trainable_variables)
        return {"d_loss": d_loss, "g_loss": g_loss}


def train(wrap: Wrap) -> Trained:
    model = wrap(Wgan(*networks()))
    model.compile(
        keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9, epsilon=1e-3),
        keras.optimizers.Adam(2e-4, beta_1=0.5, beta_2=0.9, epsilon=1e-3),
        d_loss_fn=lambda real, fake: tf.reduce_mean(fake) - tf.reduce_mean(real),
        g_loss_fn=lambda fake: -tf.reduce_mean(fake),
    )
    return model, model.fit(2 * pixels(0, SAMPLES, 8, 8, 1) - 1, batch_size=BATCH, epochs=2, verbose=0).history


if __name__ == "__main__":
    as_script(train)
