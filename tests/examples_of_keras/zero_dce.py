"""Low-light enhancement without labels: images are the whole batch, four losses of the model's own, a call with curves."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, pixels

CURVES = 3


def network() -> keras.Model:
    inputs = keras.Input((None, None, 3))
    first = layers.Conv2D(4, 3, activation="relu", padding="same")(inputs)
    second = layers.Conv2D(4, 3, activation="relu", padding="same")(first)
    joined = layers.Concatenate(axis=-1)([first, second])
    return keras.Model(inputs, layers.Conv2D(3 * CURVES, 3, activation="tanh", padding="same")(joined))


def colour_loss(x: Any) -> Any:
    means = tf.reduce_mean(x, [1, 2])
    red, green, blue = means[:, 0], means[:, 1], means[:, 2]
    return tf.sqrt(tf.square(red - green) ** 2 + tf.square(red - blue) ** 2 + tf.square(blue - green) ** 2 + 1e-8)


def exposure_loss(x: Any) -> Any:
    means = tf.nn.avg_pool2d(tf.reduce_mean(x, 3, keepdims=True), 4, 4, "VALID")
    return tf.reduce_mean(tf.square(means - 0.6))


def smoothness_loss(x: Any) -> Any:
    vertical = tf.reduce_sum(tf.square(x[:, 1:] - x[:, :-1])) / tf.cast(tf.size(x[0, 1:]), tf.float32)
    return 2 * vertical / tf.cast(tf.shape(x)[0], tf.float32)


class ZeroDce(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def compile(self, learning_rate: float) -> None:
        super().compile()
        self.optimizer = keras.optimizers.Adam(learning_rate, epsilon=1e-3)
        self.trackers = {name: keras.metrics.Mean(name=name) for name in ("total", "colour", "exposure", "smoothness")}

    @property
    def metrics(self) -> list[Any]:
        return list(self.trackers.values())

    def call(self, images: Any) -> Any:
        return self.enhanced(images, self.network(images))

    def enhanced(self, x: Any, curves: Any) -> Any:
        for curve in tf.split(curves, CURVES, -1):
            x = x + curve * (tf.square(x) - x)
        return x

    def losses_of(self, images: Any) -> dict[str, Any]:
        curves = self.network(images)
        x = self.enhanced(images, curves)
        found = {
            "colour": 5 * tf.reduce_mean(colour_loss(x)),
            "exposure": 10 * exposure_loss(x),
            "smoothness": 20 * smoothness_loss(curves),
        }
        return {"total": sum(found.values()), **found}

    def tracked(self, losses: dict[str, Any]) -> Any:
        for name, loss in losses.items():
            self.trackers[name].update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = self.losses_of(data)
        gradients = tape.gradient(losses["total"], self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights, strict=True))
        return self.tracked(losses)

    def test_step(self, data: Any) -> Any:
        return self.tracked(self.losses_of(data))


def train(wrap: Wrap) -> Trained:
    images = 0.4 * pixels(0, SAMPLES, 8, 8, 3)
    model = wrap(ZeroDce())
    model.compile(learning_rate=1e-3)
    history = model.fit(batched(images), validation_data=batched(images[:7]), epochs=2, verbose=0).history
    return model, {**history, "enhanced": model.predict(images, verbose=0)}


if __name__ == "__main__":
    as_script(train)
