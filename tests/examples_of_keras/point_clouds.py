"""Classes of point clouds: a network learns how to turn them; a regularizer of activities keeps its matrix orthogonal."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, classes, numbers

POINTS = 5


class Orthogonal(keras.regularizers.Regularizer):
    """of_pairs: of all pairs of samples, as the example has it; else of each sample."""

    def __init__(self, of_pairs: bool) -> None:
        self.of_pairs = of_pairs

    def __call__(self, x: Any) -> Any:
        x = tf.reshape(x, (-1, 3, 3))
        products = tf.tensordot(x, x, axes=(2, 2)) if self.of_pairs else tf.matmul(x, x, transpose_b=True)
        return tf.reduce_sum(0.1 * tf.square(tf.reshape(products, (-1, 3, 3)) - tf.eye(3)))


def as_written(wrap: Wrap) -> Trained:
    return train(wrap, of_pairs=True)


def train(wrap: Wrap, of_pairs: bool = False) -> Trained:
    inputs = keras.Input((POINTS, 3))
    x = layers.GlobalMaxPooling1D()(layers.Conv1D(4, 1, activation="tanh")(inputs))
    matrix = layers.Dense(9, activity_regularizer=Orthogonal(of_pairs), name="matrix")(x)
    turned = layers.Dot(axes=(2, 1))([inputs, layers.Reshape((3, 3))(matrix)])
    outputs = layers.Dense(3, activation="softmax")(layers.GlobalMaxPooling1D()(layers.Conv1D(4, 1)(turned)))
    model = wrap(keras.Model(inputs, outputs))
    model.compile(
        loss="sparse_categorical_crossentropy",
        optimizer=keras.optimizers.Adam(learning_rate=0.001, epsilon=1e-3),
        metrics=["sparse_categorical_accuracy"],
    )
    data = batched(numbers(0, SAMPLES, POINTS, 3), classes(1, 3, SAMPLES))
    return model, model.fit(data, epochs=2, validation_data=data, verbose=0).history


if __name__ == "__main__":
    as_script(train)
