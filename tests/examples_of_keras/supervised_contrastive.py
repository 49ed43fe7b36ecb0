"""Supervised contrastive learning: a loss that couples the samples of a batch, then a classifier on the frozen encoder."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes, numbers


class SupervisedContrastiveLoss(keras.losses.Loss):
    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__(name="supervised_contrastive")
        self.temperature = temperature

    def call(self, labels: Any, features: Any) -> Any:
        features = tf.math.l2_normalize(features, 1)
        logits = tf.matmul(features, features, transpose_b=True) / self.temperature
        alike = tf.cast(tf.equal(labels, tf.transpose(labels)), tf.float32)
        others = 1.0 - tf.eye(tf.shape(logits)[0])
        chances = logits - tf.math.log(tf.reduce_sum(tf.exp(logits) * others, 1, keepdims=True))
        return -tf.reduce_sum(alike * others * chances, 1) / tf.maximum(tf.reduce_sum(alike * others, 1), 1.0)


def train(wrap: Wrap) -> Trained:
    x, y = numbers(0, SAMPLES, 8), classes(1, 3, SAMPLES, 1)
    encoder = keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="gelu"), layers.Dense(4)])
    inputs = keras.Input((8,))
    projected = keras.Model(inputs, layers.Dense(4)(encoder(inputs)))
    with_projection = wrap(projected)
    with_projection.compile(optimizer=keras.optimizers.Adam(1e-2, epsilon=1e-3), loss=SupervisedContrastiveLoss())
    first = with_projection.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
    encoder.trainable = False
    model = wrap(keras.Model(inputs, layers.Dense(3, activation="softmax")(encoder(inputs))))
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
    )
    second = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0).history
    return model, {"contrastive": first["loss"], **second}


if __name__ == "__main__":
    as_script(train)
