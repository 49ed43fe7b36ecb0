"""Named entities: padded batches of sequences, and a loss that is a mean over the tokens that are no padding."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes

TAGS, WORDS = 4, 15


class NonPaddingLoss(keras.losses.Loss):
    def __init__(self) -> None:
        super().__init__(name="custom_ner_loss")

    def call(self, y_true: Any, y_pred: Any) -> Any:
        losses = keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=False)
        counted = tf.cast(y_true > 0, tf.float32)
        return tf.reduce_sum(losses * counted) / tf.reduce_sum(counted)


def train(wrap: Wrap) -> Trained:
    rows = [
        (row[: 2 + i % 5], row[: 2 + i % 5] % (TAGS - 1) + 1) for i, row in enumerate(1 + classes(0, WORDS - 1, SAMPLES, 7))
    ]
    data = tf.data.Dataset.from_generator(
        lambda: iter(rows), output_signature=(tf.TensorSpec([None], tf.int32), tf.TensorSpec([None], tf.int32))
    ).padded_batch(BATCH)
    inputs = keras.Input((None,), dtype="int32")
    x = layers.Conv1D(6, 3, padding="same", activation="tanh")(layers.Embedding(WORDS, 5)(inputs))
    model = wrap(keras.Model(inputs, layers.Dense(TAGS, activation="softmax")(x)))
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=NonPaddingLoss())
    return model, model.fit(data, epochs=2, verbose=0).history


if __name__ == "__main__":
    as_script(train)
