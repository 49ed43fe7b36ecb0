"""Training without any seed: what is random must be the same on all ranks all the same.

Even ranks import TensorFlow before us, odd ranks after us: shuffles are seeded either way.
"""

from __future__ import annotations

import os
import sys

if int(os.environ["TNT_RANK"]) % 2 == 0:
    import tensorflow as tf

    import tarantella as tnt
else:
    import tarantella as tnt

    assert "tensorflow" not in sys.modules
    import tensorflow as tf

import keras
import numpy as np
from keras import layers

from checks import check, run
from tarantella.keras.data import split
from tarantella.seeding import global_seed

SAMPLES, BATCH = 100, 16
x = np.random.default_rng(0).normal(size=(SAMPLES, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)


def model() -> tnt.Model:
    return tnt.Model(keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(1)]))


def weights(of: tnt.Model) -> list[float]:
    return np.concatenate([w.ravel() for w in of.get_weights()]).tolist()


def parts(dataset: tf.data.Dataset, epochs: int = 2) -> list[list[list[int]]]:
    """This rank's part of each batch of each epoch."""
    mine = split.distribute(dataset, split.Division.among(tnt.get_size(), tnt.get_rank()))
    return [[part[: int(share[0])].tolist() for ((part, share),) in mine.as_numpy_iterator()] for _ in range(epochs)]


@check
def no_seed_is_set() -> bool:
    return global_seed() is None


@check
def shuffle() -> list[list[list[int]]]:
    return parts(tf.data.Dataset.range(SAMPLES).shuffle(SAMPLES).batch(BATCH))


@check
def shuffle_once() -> list[list[list[int]]]:
    return parts(tf.data.Dataset.range(SAMPLES).shuffle(SAMPLES, reshuffle_each_iteration=False).batch(BATCH))


@check
def two_shuffles() -> list[list[list[int]]]:
    return parts(tf.data.Dataset.range(SAMPLES).shuffle(50).batch(BATCH).shuffle(5).prefetch(2))


def chosen(dataset: tf.data.Dataset) -> list[list[int]]:
    return [[int(number) for number in dataset.take(SAMPLES).as_numpy_iterator()] for _ in range(2)]


def halves() -> list[tf.data.Dataset]:
    return [tf.data.Dataset.range(start, start + SAMPLES).repeat() for start in (0, 1000)]


@check
def sample_from_datasets() -> list[list[int]]:
    return chosen(tf.data.Dataset.sample_from_datasets(halves(), [0.5, 0.5]))


@check
def sample_from_datasets_as_before() -> list[list[int]]:
    return chosen(tf.data.experimental.sample_from_datasets(halves()))


@check
def rejection_resample() -> list[list[int]]:
    dataset = tf.data.Dataset.range(100 * SAMPLES)
    few = dataset.rejection_resample(lambda number: tf.cast(number % 10 == 0, tf.int32), [0.5, 0.5], [0.9, 0.1])
    return chosen(few.map(lambda kind, number: number))


@check
def random_numbers() -> list[list[int]]:
    return chosen(tf.data.Dataset.random())


@check
def sets_of_text() -> list[str]:
    return list({"a", "b", "c", "d", "e", "f", "g"})


@check
def a_seed_of_the_script() -> list[list[list[int]]]:
    return parts(tf.data.Dataset.range(SAMPLES).shuffle(SAMPLES, 7).batch(BATCH))


@check
def weights_before_and_after_fit() -> list[list[float]]:
    wrapped = model()
    wrapped.compile("adam", "mse")
    before = weights(wrapped)
    wrapped.fit(tf.data.Dataset.from_tensor_slices((x, y)).shuffle(SAMPLES).batch(BATCH), epochs=2, verbose=0)
    return [before, weights(wrapped)]


@check
def weights_before_and_after_evaluate() -> list[list[float]]:
    wrapped = model()
    wrapped.compile("adam", "mse")
    before = weights(wrapped)
    wrapped.evaluate(x, y, verbose=0)
    return [before, weights(wrapped)]


@check
def dropout_and_arrays() -> list[float]:
    """Arrays are shuffled by TensorFlow's own random op."""
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(8), layers.Dropout(0.5), layers.Dense(1)])
    wrapped = tnt.Model(inner)
    wrapped.compile("adam", "mse")
    wrapped.fit(x, y, batch_size=BATCH, epochs=2, shuffle=True, verbose=0)
    return weights(wrapped)


run(sys.argv[1])
