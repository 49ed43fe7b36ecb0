"""Semi-supervised contrastive learning: batches of two sizes, two optimizers, a probe, a loss over all pairs of a batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from example import Trained, Wrap, as_script, classes, generator, normal, numbers, update


class Contrastive(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.seeds = generator(4)
        self.encoder = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="gelu"), layers.Dense(5)])
        self.projection = keras.Sequential([keras.Input((5,)), layers.Dense(5, activation="gelu"), layers.Dense(5)])
        self.probe = keras.Sequential([keras.Input((5,)), layers.Dense(3)])

    def compile(self, contrastive_optimizer: Any, probe_optimizer: Any) -> None:
        super().compile()
        self.contrastive_optimizer, self.probe_optimizer = contrastive_optimizer, probe_optimizer
        self.probe_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.c_loss, self.p_loss = keras.metrics.Mean(name="c_loss"), keras.metrics.Mean(name="p_loss")
        self.accuracy = keras.metrics.SparseCategoricalAccuracy(name="p_acc")

    @property
    def metrics(self) -> list[Any]:
        return [self.c_loss, self.p_loss, self.accuracy]

    def contrastive_loss(self, first: Any, second: Any) -> Any:
        # the one line that a user adds: the features of all ranks
        first, second = tnt.all_gather(tf.math.l2_normalize(first, 1)), tnt.all_gather(tf.math.l2_normalize(second, 1))
        similarities = tf.matmul(first, second, transpose_b=True) / 0.1
        labels = tf.range(tf.shape(first)[0])
        losses = keras.losses.sparse_categorical_crossentropy(
            tf.concat([labels, labels], 0),
            tf.concat([similarities, tf.transpose(similarities)], 0),
            from_logits=True,
        )
        return tf.reduce_mean(losses)

    def train_step(self, data: Any) -> Any:
        unlabeled, (labeled, labels) = data
        samples = tf.concat([unlabeled, labeled], 0)
        with tf.GradientTape() as tape:
            views = [samples + 0.1 * self.view(unlabeled, labeled) for _ in range(2)]
            loss = self.contrastive_loss(*(self.projection(self.encoder(view)) for view in views))
        update(self.contrastive_optimizer, tape, loss, self.encoder.trainable_weights + self.projection.trainable_weights)
        self.c_loss.update_state(loss)
        with tf.GradientTape() as tape:
            logits = self.probe(self.encoder(labeled, training=False))
            loss = self.probe_loss(labels, logits)
        update(self.probe_optimizer, tape, loss, self.probe.trainable_weights)
        self.p_loss.update_state(loss)
        self.accuracy.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics}

    def view(self, unlabeled: Any, labeled: Any) -> Any:
        return tf.concat([normal(unlabeled, (6,), self.seeds), normal(labeled, (6,), self.seeds)], 0)

    def test_step(self, data: Any) -> Any:
        samples, labels = data
        logits = self.probe(self.encoder(samples, training=False), training=False)
        self.p_loss.update_state(self.probe_loss(labels, logits))
        self.accuracy.update_state(labels, logits)
        return {metric.name: metric.result() for metric in self.metrics[1:]}


def train(wrap: Wrap) -> Trained:
    unlabeled = tf.data.Dataset.from_tensor_slices(numbers(0, 24, 6)).batch(8)
    labeled = tf.data.Dataset.from_tensor_slices((numbers(1, 12, 6), classes(2, 3, 12))).batch(4)
    test = tf.data.Dataset.from_tensor_slices((numbers(3, 11, 6), classes(4, 3, 11))).batch(4)
    model = wrap(Contrastive())
    model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), keras.optimizers.Adam(1e-2))
    return model, model.fit(tf.data.Dataset.zip((unlabeled, labeled)), epochs=2, validation_data=test, verbose=0).history


if __name__ == "__main__":
    as_script(train)
