"""Parallel maps that draw random numbers are made serial: the numbers of each element are those of a serial map."""

from __future__ import annotations

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from support.findings import Findings
from support.launch import RANKS
from tarantella import made_datasets
from tarantella.keras.adapter import datasets, serial_maps

Dataset = tf.data.Dataset
SAMPLES = 40


@pytest.fixture(scope="module", autouse=True)
def noted():
    made_datasets.note(tf)


def uneven(i: tf.Tensor) -> tf.Tensor:
    """Threads overtake one another here."""
    return tf.ensure_shape(tf.numpy_function(lambda v: (time.sleep(0.002 * (v % 4 == 0)), v)[1], [i], tf.int64), [])


def noisy(i: tf.Tensor) -> tf.Tensor:
    return tf.cast(uneven(i), tf.float32) + tf.random.uniform([], seed=3)


def of_generator():
    generator = tf.random.Generator.from_seed(3, alg="philox")

    def mapped(i: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([], generator.make_seeds(1)[:, 0]) + tf.cast(uneven(i), tf.float32)

    return mapped


def of_layer():
    layer = keras.layers.GaussianNoise(1.0, seed=3)
    return lambda i: layer(tf.cast(tf.reshape(uneven(i), [1]), tf.float32), training=True)


def of_table():
    keys = tf.range(SAMPLES, dtype=tf.int64)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, keys * 2), -1)
    return lambda i: noisy(table.lookup(i))


def once(i: tf.Tensor) -> tf.Tensor:
    return noisy(i) if tf.equal(i % 2, 0) else tf.cast(i, tf.float32)


def numbers() -> Dataset:
    return Dataset.range(SAMPLES)


def parts(i: tf.Tensor) -> Dataset:
    return Dataset.range(10 * i, 10 * i + 10)


def interleaved(function, outer, inner) -> Dataset:
    parallel = {} if outer is None else {"num_parallel_calls": 2}
    return Dataset.range(4).interleave(lambda i: parts(i).map(function, inner), cycle_length=2, **parallel)


def shuffled(function, calls) -> Dataset:
    return (
        numbers().shuffle(30, seed=1).map(function, calls, deterministic=calls and True).shuffle(3, seed=2).batch(4).repeat(2)
    )


def batched_at_once(calls) -> Dataset:
    if calls is None:
        return numbers().map(noisy).batch(4)
    return numbers().apply(tf.data.experimental.map_and_batch(noisy, 4, num_parallel_calls=calls))


def interleaved_before(calls) -> Dataset:
    if calls is None:
        return interleaved(noisy, None, None)
    return Dataset.range(4).apply(tf.data.experimental.parallel_interleave(lambda i: parts(i).map(noisy), 2))


DRAWING = {
    "image": lambda calls: numbers().map(noisy, calls).batch(4).prefetch(2),
    "between shuffles": lambda calls: shuffled(noisy, calls),
    "generator": lambda calls: numbers().map(of_generator(), calls).batch(4),
    "one generator in two": lambda calls: (lambda f: numbers().map(f, calls).map(lambda x: f(tf.cast(x, tf.int64)), calls))(
        of_generator()),
    "layer": lambda calls: numbers().map(of_layer(), calls).batch(4),
    "table": lambda calls: numbers().map(of_table(), calls).batch(4),
    "a branch": lambda calls: numbers().map(once, calls).batch(4),
    "parallel interleave": lambda calls: interleaved(noisy, calls, None),
    "in an interleave": lambda calls: interleaved(noisy, None, calls),
    "in a parallel interleave": lambda calls: interleaved(of_table(), calls, calls),
    "a generator in an interleave": lambda calls: interleaved(of_generator(), None, calls),
    "in flat_map": lambda calls: Dataset.range(4).flat_map(lambda i: parts(i).map(noisy, calls)),
    "map_and_batch": batched_at_once,
    "parallel_interleave": interleaved_before,
    "zipped and kept": lambda calls: Dataset.zip(numbers().map(noisy, calls), numbers()).batch(4).cache().repeat(2),
    "from Python": lambda calls: Dataset.from_generator(
        lambda: iter(range(SAMPLES)), output_signature=tf.TensorSpec([], tf.int64)).map(noisy, calls),
}  # fmt: skip


def drawn(make, calls: int | None) -> list[np.ndarray]:
    keras.utils.set_random_seed(5)
    given = make(calls)
    dataset, names = serial_maps.serial(given)
    assert bool(names) == (calls is not None)
    assert dataset.element_spec == given.element_spec
    assert int(dataset.cardinality()) == int(given.cardinality())
    assert not serial_maps.left(dataset)
    return [np.asarray(tf.nest.flatten(element)[0]) for _ in range(2) for element in dataset]


@pytest.mark.parametrize("name", DRAWING)
def test_numbers_are_those_of_a_serial_map(name):
    for got, wanted in zip(drawn(DRAWING[name], 4), drawn(DRAWING[name], None), strict=True):
        np.testing.assert_array_equal(got, wanted)


def stateless(i: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform([], tf.stack([i, 1]))


def looked_up():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0], [1]), -1)
    return lambda i: table.lookup(tf.cast(i, tf.int32))


@pytest.mark.parametrize("make", [lambda: stateless, lambda: uneven, looked_up, lambda: tf.io.read_file])
def test_other_maps_stay_parallel(make):
    dataset = numbers().map(tf.strings.as_string).map(make(), 4) if make() is tf.io.read_file else numbers().map(make(), 4)
    same, names = serial_maps.serial(dataset.batch(4))
    assert datasets.kind(same) == "BatchDataset"
    assert names == []


def test_a_dataset_of_unknown_making_is_known_to_be_left():
    variant = tf.data.experimental.to_variant(dataset := numbers().map(noisy, 4))
    del variant._tnt_made
    assert serial_maps.serial(dataset) == (dataset, [])
    assert serial_maps.left(dataset)


def test_a_shuffle_goes_on_in_a_second_fit():
    dataset = numbers().map(noisy, 2).shuffle(SAMPLES, seed=1)
    first, again = (list(serial_maps.serial(dataset)[0].map(lambda x: tf.cast(x, tf.int64)).as_numpy_iterator()) for _ in "ab")
    assert first != again


def test_ranks_train_on_the_same_batches():
    found = Findings(2, RANKS / "keras/data/random_maps.py", env={"TNT_LOG_LEVEL": "INFO"})
    for of_rank in found["losses"]:
        for name, (parallel, serial) in of_rank.items():
            np.testing.assert_allclose(parallel, serial, rtol=1e-6, err_msg=name)
    assert found["losses"][0] == found["losses"][1]
    said = [text for text in found["said"][0] if "one call at a time" in text]
    assert len(said) == 4  # two cases, training and validation
    assert "training data: map_flipped (RandomUniform) draws random numbers" in said[0]
