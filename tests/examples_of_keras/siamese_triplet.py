"""A siamese network on triplets: zipped datasets without labels, a distance layer, a training and a test step of its own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, pixels, update


class Distances(layers.Layer):
    def call(self, anchor: Any, positive: Any, negative: Any) -> Any:
        return tf.reduce_sum(tf.square(anchor - positive), -1), tf.reduce_sum(tf.square(anchor - negative), -1)


def network() -> keras.Model:
    base = keras.Sequential([keras.Input((8, 8, 3)), layers.Conv2D(4, 3, strides=2), layers.Flatten(), layers.Dense(5)])
    base.layers[0].trainable = False  # the example trains the upper layers of a network that it was given
    inputs = [keras.Input((8, 8, 3), name=name) for name in ("anchor", "positive", "negative")]
    return keras.Model(inputs, Distances()(*(base(x) for x in inputs)))


class Siamese(keras.Model):
    def __init__(self, network: keras.Model, margin: float = 0.5) -> None:
        super().__init__()
        self.network, self.margin = network, margin
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, inputs: Any) -> Any:
        return self.network(inputs)

    def triplet_loss(self, data: Any) -> Any:
        near, far = self.network(data)
        return tf.maximum(near - far + self.margin, 0.0)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = self.triplet_loss(data)
        update(self.optimizer, tape, loss, self.network.trainable_weights)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data: Any) -> Any:
        self.loss_tracker.update_state(self.triplet_loss(data))
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self) -> list[Any]:
        return [self.loss_tracker]


def train(wrap: Wrap) -> Trained:
    images = [tf.data.Dataset.from_tensor_slices(pixels(seed, SAMPLES, 8, 8, 3)) for seed in range(3)]
    triplets = tf.data.Dataset.zip(tuple(images)).shuffle(64, seed=1)
    model = wrap(Siamese(network()))
    model.compile(optimizer=keras.optimizers.Adam(1e-4, epsilon=1e-3))
    history = model.fit(triplets.take(24).batch(10), epochs=2, validation_data=triplets.skip(24).batch(10), verbose=0).history
    return model, history


if __name__ == "__main__":
    as_script(train)
