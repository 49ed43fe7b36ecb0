"""A GAN with a `train_step` of its own and two optimizers: its generator learns to draw the points of a ring.

    tarantella -n 2 -- gan.py --epochs 50

The noise is part of the data, so any number of ranks computes what one device does.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1


class Gan(keras.Model):
    """Points and noise in, two losses out."""

    def __init__(self, noise: int) -> None:
        super().__init__()

        def dense(inputs: int, outputs: int) -> Any:
            layers = [keras.layers.Dense(32, activation="gelu") for _ in range(2)]
            return keras.Sequential([keras.layers.Input((inputs,)), *layers, keras.layers.Dense(outputs)])

        self.generator, self.critic = dense(noise, 2), dense(2, 1)

    def compile(self, generator_optimizer: Any, critic_optimizer: Any) -> None:
        super().compile()
        self.generator_optimizer, self.critic_optimizer = generator_optimizer, critic_optimizer

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        real, noise = data
        with tf.GradientTape(persistent=True) as tape:
            true, fake = self.critic(real), self.critic(self.generator(noise))
            critic_loss = tf.reduce_mean(tf.nn.softplus(-true)) + tf.reduce_mean(tf.nn.softplus(fake))
            generator_loss = tf.reduce_mean(tf.nn.softplus(-fake))
        for loss, part, optimizer in (
            (critic_loss, self.critic, self.critic_optimizer),
            (generator_loss, self.generator, self.generator_optimizer),
        ):
            variables = part.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"critic_loss": critic_loss, "generator_loss": generator_loss}


def points(n: int, noise: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points near the circle of radius 1, and noise for as many."""
    rng = np.random.default_rng(seed)
    angles = rng.uniform(0, 2 * np.pi, n)
    ring = np.stack([np.cos(angles), np.sin(angles)], 1) + rng.normal(0, 0.05, (n, 2))
    return ring.astype(np.float32), rng.normal(size=(n, noise)).astype(np.float32)


def train(wrap: Any, epochs: int, samples: int, noise: int = 4) -> tuple[Any, dict[str, list[float]]]:
    """The GAN and its losses. wrap: `tnt.Model`, or a function that returns its argument, for plain Keras."""
    model = wrap(Gan(noise))
    # a large epsilon: with the usual one Adam makes a step of rounding, where a gradient is nearly zero
    model.compile(*(keras.optimizers.Adam(2e-3, beta_1=0.5, epsilon=1e-4) for _ in range(2)))
    data = tf.data.Dataset.from_tensor_slices(points(samples, noise, seed=1)).shuffle(samples, seed=2).batch(60)
    return model, model.fit(data, epochs=epochs, verbose=0).history


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a GAN.")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--samples", type=int, default=600)
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    model, history = train(tnt.Model, args.epochs, args.samples)
    if tnt.is_master_rank():
        drawn = model.generator(points(500, 4, seed=3)[1]).numpy()
        radii = np.linalg.norm(drawn, axis=1)
        print(*(f"{name}: {values[0]:.4f} to {values[-1]:.4f}" for name, values in history.items()), sep="\n")
        print(f"radius of 500 points that it draws: {radii.mean():.2f} +- {radii.std():.2f} (wanted: 1.00 +- 0.05)")


if __name__ == "__main__":
    main()
