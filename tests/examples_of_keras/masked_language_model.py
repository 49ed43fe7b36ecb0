"""A masked language model: batches with weights of tokens, and a step that passes them to the loss and to the metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, classes, update

WORDS, LENGTH, WIDTH = 13, 6, 6


class MaskedLanguageModel(keras.Model):
    def compile(self, **kwargs: Any) -> None:
        super().compile(**kwargs)
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(reduction="none")
        self.tracker = keras.metrics.Mean(name="loss")

    def train_step(self, inputs: Any) -> Any:
        features, labels, weights = inputs
        with tf.GradientTape() as tape:
            loss = self.loss_fn(labels, self(features, training=True), sample_weight=weights)
        update(self.optimizer, tape, loss, self.trainable_variables)
        self.tracker.update_state(loss, sample_weight=weights)
        return {"loss": self.tracker.result()}

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]


def train(wrap: Wrap) -> Trained:
    labels = classes(0, WORDS, SAMPLES, LENGTH)
    weights = (classes(1, 4, SAMPLES, LENGTH) == 0).astype(np.float32)
    inputs = keras.Input((LENGTH,), dtype="int64")
    embedded = layers.Embedding(WORDS, WIDTH)(inputs)
    attended = layers.MultiHeadAttention(2, WIDTH)(embedded, embedded)
    x = layers.LayerNormalization(epsilon=1e-6)(embedded + attended)
    model = wrap(MaskedLanguageModel(inputs, layers.Dense(WORDS, activation="softmax")(x)))
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    data = batched(np.where(weights == 1, WORDS - 1, labels), labels, weights)
    return model, model.fit(data, epochs=2, verbose=0).history


if __name__ == "__main__":
    as_script(train)
