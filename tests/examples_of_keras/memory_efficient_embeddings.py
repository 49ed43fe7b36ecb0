"""Embeddings of less memory: quotients and remainders of indices, and mixed dimensions by frequency, as layers of one's own."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, classes, pixels

WORDS, BUCKETS, WIDTH = 30, 6, 4


class QuotientRemainder(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.quotients, self.remainders = layers.Embedding(BUCKETS, WIDTH), layers.Embedding(BUCKETS, WIDTH)

    def call(self, indices: Any) -> Any:
        return self.quotients(indices // BUCKETS) * self.remainders(tf.math.floormod(indices, BUCKETS))


class MixedDimensions(layers.Layer):
    def __init__(self, blocks: list[int], widths: list[int]) -> None:
        super().__init__()
        self.borders = [sum(blocks[:i]) for i in range(len(blocks))]
        self.blocks = blocks
        self.tables = [layers.Embedding(n, width) for n, width in zip(blocks, widths, strict=True)]
        self.projections = [layers.Dense(WIDTH, use_bias=False) for _ in widths]

    def call(self, indices: Any) -> Any:
        total = 0.0
        for begin, size, table, projection in zip(self.borders, self.blocks, self.tables, self.projections, strict=True):
            inside = tf.logical_and(indices >= begin, indices < begin + size)
            rows = projection(table(tf.clip_by_value(indices - begin, 0, size - 1)))
            total += tf.where(inside[..., None], rows, tf.zeros_like(rows))
        return total


def train(wrap: Wrap) -> Trained:
    data = {"user": classes(0, WORDS, SAMPLES), "film": classes(1, WORDS, SAMPLES)}
    inputs = {name: keras.Input((), name=name, dtype="int32") for name in data}
    user, film = QuotientRemainder()(inputs["user"]), MixedDimensions([5, 10, 15], [4, 3, 2])(inputs["film"])
    product = layers.Dot(axes=1)([user, film])
    model = wrap(keras.Model(inputs, layers.Rescaling(5.0)(layers.Activation("sigmoid")(product))))
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=keras.losses.MeanSquaredError(), metrics=["mae"])
    ratings = batched(data, 5 * pixels(2, SAMPLES))
    return model, model.fit(ratings, epochs=2, validation_data=ratings, verbose=0).history


if __name__ == "__main__":
    as_script(train)
