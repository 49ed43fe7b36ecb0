"""Models whose training step is their own: without a call, with batches that are no pairs, with several optimizers.

Each is made small in the way of the well-known ones. Noise is part of the data, so that any number of ranks sees the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers, optimizers

SAMPLES, BATCH = 43, 10
random = np.random.default_rng(0)


def numbers(*shape: int) -> Any:
    return random.normal(size=(SAMPLES, *shape)).astype(np.float32)


def net(*units: int, inputs: int = 0) -> Any:
    """A network. inputs: how many; 0: it learns that at its first call."""
    begin = [keras.Input((inputs,))] if inputs else []
    return keras.Sequential([*begin, *(layers.Dense(n, activation="tanh") for n in units[:-1]), layers.Dense(units[-1])])


def update(optimizer: Any, tape: Any, loss: Any, variables: Any) -> None:
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


class Gan(keras.Model):
    """Two optimizers that `compile` takes; convolutions; images alone would be the batch, were it not for the noise."""

    data = (numbers(6, 6, 1), numbers(5))

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential(
            [keras.Input((5,)), layers.Dense(36), layers.Reshape((6, 6, 1)), layers.Conv2D(1, 3, padding="same")]
        )
        self.discriminator = keras.Sequential(
            [keras.Input((6, 6, 1)), layers.Conv2D(3, 3, strides=2), layers.LeakyReLU(), layers.Flatten(), layers.Dense(1)]
        )
        self.d_metric, self.g_metric = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer
        self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)

    def prepare(self, model: Any) -> None:
        model.compile(optimizers.Adam(1e-2), optimizers.RMSprop(2e-3))

    @property
    def metrics(self) -> list[Any]:
        return [self.d_metric, self.g_metric]

    def train_step(self, data: Any) -> Any:
        images, noise = data
        both = tf.concat([self.generator(noise), images], 0)
        labels = tf.concat([tf.ones_like(noise[:, :1]), tf.zeros_like(noise[:, :1])], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.discriminator(both))
        update(self.d_optimizer, tape, d_loss, self.discriminator.trainable_weights)
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(tf.zeros_like(noise[:, :1]), self.discriminator(self.generator(noise)))
        update(self.g_optimizer, tape, g_loss, self.generator.trainable_weights)
        self.d_metric.update_state(d_loss)
        self.g_metric.update_state(g_loss)
        return {"d_loss": self.d_metric.result(), "g_loss": self.g_metric.result()}


class PenalisedGan(keras.Model):
    """Several critic steps, each with a penalty on the gradient; networks that learn their inputs in the step."""

    data = (numbers(4), numbers(3), numbers(3), numbers(1))

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.critic = net(8, 4), net(8, 1)

    def prepare(self, model: Any) -> None:
        model.compile(loss=None)
        model.own = {"critic": optimizers.SGD(5e-3), "generator": optimizers.SGD(1e-2, momentum=0.9)}

    def train_step(self, data: Any) -> Any:
        real, *noises, epsilon = data
        for noise in noises:
            with tf.GradientTape() as tape:
                fake = self.generator(noise)
                between = epsilon * real + (1.0 - epsilon) * fake
                with tf.GradientTape() as inner:
                    inner.watch(between)
                    score = self.critic(between)
                norm = tf.sqrt(tf.reduce_sum(tf.square(inner.gradient(score, between)), 1) + 1e-6)
                penalty = tf.reduce_mean(tf.square(norm - 1.0))
                c_loss = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(self.critic(real)) + 10.0 * penalty
            update(self.own["critic"], tape, c_loss, self.critic.trainable_variables)
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.critic(self.generator(noises[0])))
        update(self.own["generator"], tape, g_loss, self.generator.trainable_variables)
        return {"c_loss": c_loss, "g_loss": g_loss}


class Cycle(keras.Model):
    """Four networks with four optimizers, of which one tape gives all gradients; batches of zipped data."""

    data = (numbers(4), numbers(4))

    def __init__(self) -> None:
        super().__init__()
        self.to_b, self.to_a, self.of_a, self.of_b = (net(6, n) for n in (4, 4, 1, 1))

    def prepare(self, model: Any) -> None:
        model.compile()
        model.all_optimizers = [optimizers.SGD(1e-2) for _ in range(4)]

    def train_step(self, data: Any) -> Any:
        a, b = data
        with tf.GradientTape(persistent=True) as tape:
            fake_b, fake_a = self.to_b(a), self.to_a(b)
            cycle = tf.reduce_mean(tf.abs(self.to_a(fake_b) - a)) + tf.reduce_mean(tf.abs(self.to_b(fake_a) - b))
            losses = [
                tf.reduce_mean(tf.square(self.of_b(fake_b) - 1.0)) + 3.0 * cycle,
                tf.reduce_mean(tf.square(self.of_a(fake_a) - 1.0)) + 3.0 * cycle,
                tf.reduce_mean(tf.square(self.of_a(a) - 1.0)) + tf.reduce_mean(tf.square(self.of_a(fake_a))),
                tf.reduce_mean(tf.square(self.of_b(b) - 1.0)) + tf.reduce_mean(tf.square(self.of_b(fake_b))),
            ]
        networks = [self.to_b, self.to_a, self.of_a, self.of_b]
        grads = [tape.gradient(loss, n.trainable_variables) for loss, n in zip(losses, networks, strict=True)]
        for optimizer, gradients, network in zip(self.all_optimizers, grads, networks, strict=True):
            optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return {f"loss_{i}": loss for i, loss in enumerate(losses)}


class Distiller(keras.Model):
    """A teacher that nobody trains, though it could be trained; and a mean of the student's weights over steps."""

    data = (numbers(4), numbers(3))

    def __init__(self) -> None:
        super().__init__()
        self.student, self.mean, self.teacher = (net(n, 3, inputs=4) for n in (4, 4, 8))

    def call(self, x: Any) -> Any:
        return self.student(x)

    def prepare(self, model: Any) -> None:
        model.compile(optimizer=optimizers.SGD(1e-2), loss="mse", metrics=["mae"])

    def train_step(self, data: Any) -> Any:
        x, y = data
        taught = self.teacher(x, training=False)
        with tf.GradientTape() as tape:
            guess = self.student(x, training=True)
            loss = 0.3 * self.compute_loss(x=x, y=y, y_pred=guess) + 0.7 * tf.reduce_mean(tf.square(guess - taught))
        update(self.optimizer, tape, loss, self.student.trainable_variables)
        for mean, own in zip(self.mean.trainable_variables, self.student.trainable_variables, strict=True):
            mean.assign(0.9 * mean + 0.1 * own)
        return {**self.compute_metrics(x, y, guess, None), "distilled": loss}


class ActorCritic(keras.Model):
    """Batches of four, a variable beside the networks with an optimizer of its own, and one inside of a network."""

    data = (numbers(4), random.integers(0, 3, (SAMPLES,)).astype(np.int32), numbers(), numbers())

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = net(8, 3), net(8, 1)
        self.temperature = tf.Variable(0.3, name="temperature")

    def prepare(self, model: Any) -> None:
        model.compile(optimizer=optimizers.SGD(5e-2))
        model.critic.compile(optimizers.SGD(1e-2))
        model.other = {"more": (optimizers.SGD(1e-1, momentum=0.5),)}

    def train_step(self, data: Any) -> Any:
        seen, chosen, rewards, bonus = data
        with tf.GradientTape(persistent=True) as tape:
            value = self.critic(seen)[:, 0]
            chances = tf.nn.log_softmax(self.actor(seen))
            advantage = tf.stop_gradient(rewards + 0.1 * bonus - value)
            entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(chances) * chances, 1))
            a_loss = -tf.reduce_mean(tf.gather(chances, chosen, axis=1, batch_dims=1) * advantage)
            a_loss -= tf.stop_gradient(self.temperature) * entropy
            c_loss = tf.reduce_mean(tf.square(rewards - value))
            t_loss = tf.convert_to_tensor(self.temperature) * tf.stop_gradient(entropy - 1.0)
        update(self.critic.optimizer, tape, c_loss, self.critic.trainable_variables)
        update(self.optimizer, tape, a_loss, self.actor.trainable_variables)
        update(self.other["more"][0], tape, t_loss, [self.temperature])
        return {"a_loss": a_loss, "c_loss": c_loss}


class Vae(keras.Model):
    """One optimizer, no call, no labels; a layer that adds to the loss."""

    data = (numbers(6), numbers(2))

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = net(8, 4), net(8, 6)
        self.total, self.rest = keras.metrics.Mean(name="loss"), keras.metrics.Mean(name="rest")

    def prepare(self, model: Any) -> None:
        model.compile(optimizer=optimizers.SGD(1e-2))

    @property
    def metrics(self) -> list[Any]:
        return [self.total, self.rest]

    def losses_of(self, data: Any) -> tuple[Any, Any]:
        x, noise, *_ = data  # train_on_batch adds a place for sample weights
        mean, log_var = tf.split(self.encoder(x), 2, 1)
        rest = tf.reduce_mean(tf.reduce_sum(tf.square(self.decoder(mean + tf.exp(0.5 * log_var) * noise) - x), 1))
        return rest, rest - 0.5 * tf.reduce_mean(tf.reduce_sum(1.0 + log_var - tf.square(mean) - tf.exp(log_var), 1))

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            rest, total = self.losses_of(data)
        update(self.optimizer, tape, total, self.trainable_weights)
        self.total.update_state(total)
        self.rest.update_state(rest)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data: Any) -> Any:
        rest, total = self.losses_of(data)
        self.total.update_state(total)
        self.rest.update_state(rest)
        return {metric.name: metric.result() for metric in self.metrics}

    def predict_step(self, data: Any) -> Any:
        return self.encoder(data[0])


class Siamese(keras.Model):
    """Triplets, and a call that takes all three."""

    data = (numbers(4), numbers(4), numbers(4))

    def __init__(self) -> None:
        super().__init__()
        self.embedding = net(8, 3)
        self.tracker = keras.metrics.Mean(name="loss")

    def prepare(self, model: Any) -> None:
        model.compile(optimizer=optimizers.SGD(0.1))

    def call(self, triplet: Any) -> Any:
        anchor, near, far = (self.embedding(part) for part in triplet)
        return tf.reduce_sum(tf.square(anchor - near), -1), tf.reduce_sum(tf.square(anchor - far), -1)

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def loss_of(self, data: Any) -> Any:
        near, far = self(data)
        return tf.reduce_mean(tf.maximum(near - far + 0.5, 0.0))

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.loss_of(data)
        update(self.optimizer, tape, loss, self.embedding.trainable_weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}

    def test_step(self, data: Any) -> Any:
        self.tracker.update_state(self.loss_of(data))
        return {"loss": self.tracker.result()}


COMPARED = (Cycle, Distiller, ActorCritic, Vae, Siamese)
"""Gan and PenalisedGan have checks of their own."""
