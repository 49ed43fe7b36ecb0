"""Films for users: a subclassed model of embeddings, whose product of vectors is of each sample, or of the whole batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes, pixels

USERS, FILMS = 40, 50


class Recommender(keras.Model):
    def __init__(self, of_batch: bool) -> None:
        super().__init__()
        self.of_batch = of_batch
        how = {"embeddings_initializer": "he_normal", "embeddings_regularizer": keras.regularizers.l2(1e-6)}
        self.users, self.user_bias = layers.Embedding(USERS, 4, **how), layers.Embedding(USERS, 1)
        self.films, self.film_bias = layers.Embedding(FILMS, 4, **how), layers.Embedding(FILMS, 1)

    def call(self, inputs: Any) -> Any:
        user, film = self.users(inputs[:, 0]), self.films(inputs[:, 1])
        product = tf.tensordot(user, film, 2) if self.of_batch else tf.reduce_sum(user * film, 1, keepdims=True)
        return tf.nn.sigmoid(product + self.user_bias(inputs[:, 0]) + self.film_bias(inputs[:, 1]))


def as_written(wrap: Wrap) -> Trained:
    return train(wrap, of_batch=True)


def train(wrap: Wrap, of_batch: bool = False) -> Trained:
    x = classes(0, USERS, SAMPLES, 2)
    y = pixels(1, SAMPLES)
    model = wrap(Recommender(of_batch))
    model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.SGD(0.1))
    given = {"batch_size": BATCH, "epochs": 2, "verbose": 0, "validation_data": (x[:8], y[:8])}
    history = model.fit(x=x, y=y, **given).history
    return model, {**history, "ratings": model.predict(x[:7], verbose=0)}


if __name__ == "__main__":
    as_script(train)
