"""A recommender of TensorFlow Recommenders: a task's loss in `compute_loss`, crossed features."""

import tensorflow as tf
import tensorflow_recommenders as tfrs
import tf_keras as keras
from client import report, rng, wrap

FILMS = [f"film {i}" for i in range(12)]


class Ranking(tfrs.Model):
    def __init__(self):
        super().__init__()
        self.user = keras.layers.Embedding(20, 8)
        self.film = keras.Sequential([keras.layers.StringLookup(vocabulary=FILMS), keras.layers.Embedding(13, 8)])
        self.rating = keras.Sequential([tfrs.layers.dcn.Cross(), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        self.task = tfrs.tasks.Ranking(keras.losses.MeanSquaredError(), [keras.metrics.RootMeanSquaredError()])

    def call(self, features):
        return self.rating(tf.concat([self.user(features["user"]), self.film(features["film"])], 1))

    def compute_loss(self, features, training=False):
        return self.task(labels=features["rating"], predictions=self(features))


rows = {"user": rng.integers(0, 20, 90), "film": rng.choice(FILMS, 90), "rating": rng.uniform(1, 5, 90).astype("float32")}
data = tf.data.Dataset.from_tensor_slices(rows).batch(16)
model = wrap(Ranking())
model.compile(keras.optimizers.Adagrad(0.1))
history = model.fit(data, epochs=2, verbose=0).history
report(history=history, evaluated=model.evaluate(data, verbose=0), weights=model.get_weights())
