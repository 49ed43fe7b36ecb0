"""Positions in data, and which datasets need not be gone through: proved by going through them. One process, no ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras.checkpoint.position import FingerprintedDataset
from tarantella.keras.checkpoint.replay import depends_on_iterators_only, runs_python
from tarantella.keras.data import split

FILES: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def records(tmp_path_factory):
    for name in "abc":
        path = str(tmp_path_factory.mktemp("records") / name)
        with tf.io.TFRecordWriter(path) as writer:
            for number in range(5):
                writer.write(f"{name}{number}".encode())
        FILES.append(path)


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(20)


def noisy(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.float32) + tf.random.uniform([], seed=3)


def in_python(x: tf.Tensor) -> tf.Tensor:
    return tf.numpy_function(lambda n: n, [x], tf.int64)


def generated() -> tf.data.Dataset:
    return tf.data.Dataset.from_generator(lambda: iter(range(20)), output_signature=tf.TensorSpec([], tf.int64))


ITERATORS_ONLY: dict[str, Callable[[], tf.data.Dataset]] = {
    "batches": lambda: numbers().batch(3),
    "shuffled": lambda: numbers().shuffle(20, seed=1).map(lambda x: x + 1, num_parallel_calls=2).batch(3).prefetch(2),
    "shuffled twice": lambda: numbers().shuffle(20, seed=1).batch(3).shuffle(5, seed=2),
    "shuffled once for all": lambda: numbers().shuffle(20, seed=1, reshuffle_each_iteration=False).batch(3),
    "zipped": lambda: tf.data.Dataset.zip((numbers().shuffle(20, seed=1), numbers().shuffle(9, seed=2))).batch(3),
    "a part": lambda: numbers().shuffle(20, seed=1).filter(lambda x: x % 3 > 0).skip(1).take(9).shard(2, 1).padded_batch(2),
    "arrays": lambda: tf.data.Dataset.from_tensor_slices(np.arange(20)).shuffle(20, seed=1).batch(3, drop_remainder=True),
    "records": lambda: (
        tf.data.Dataset.from_tensor_slices(FILES)
        .shuffle(3, seed=1)
        .interleave(tf.data.TFRecordDataset, cycle_length=2, num_parallel_calls=2)
        .shuffle(9, seed=2)
        .batch(4)
    ),
}
MORE_THAN_ITERATORS: dict[str, Callable[[], tf.data.Dataset]] = {
    "random map": lambda: numbers().map(noisy).batch(3),
    "Python's map": lambda: numbers().map(in_python).batch(3),
    "generator": lambda: generated().batch(3),
    "repeated": lambda: numbers().shuffle(20, seed=1).repeat(2).batch(3),
    "cached": lambda: numbers().map(noisy).cache().batch(3),
    "one after another": lambda: numbers().concatenate(numbers().shuffle(20, seed=1)).batch(3),
    "a shuffle inside": lambda: (
        numbers().batch(5).flat_map(lambda x: tf.data.Dataset.from_tensor_slices(x).shuffle(5, seed=1)).batch(3)
    ),
}


def elements(dataset: tf.data.Dataset) -> list[Any]:
    return [[part.numpy().tolist() for part in tf.nest.flatten(element)] for element in dataset]


@pytest.mark.parametrize("name", ITERATORS_ONLY)
def test_iterators_are_all_that_counts(name):
    gone_through, begun = ITERATORS_ONLY[name](), ITERATORS_ONLY[name]()
    assert depends_on_iterators_only(gone_through)
    assert not runs_python(gone_through)
    for _ in range(3):
        elements(gone_through)
        next(iter(begun))
        iter(gone_through), iter(begun)  # so does Keras 3 at the end of an epoch
    assert elements(begun) == elements(gone_through)


@pytest.mark.parametrize("name", MORE_THAN_ITERATORS)
def test_what_cannot_be_left_out(name):
    dataset = MORE_THAN_ITERATORS[name]()
    assert not depends_on_iterators_only(dataset)
    assert runs_python(dataset) == (name in ("Python's map", "generator"))


@pytest.mark.parametrize("name", [*ITERATORS_ONLY, *MORE_THAN_ITERATORS])
def test_what_is_noted_belongs_to_the_batch_that_was_given(name):
    """Elements stay as they are, and nothing runs ahead."""
    made = {**ITERATORS_ONLY, **MORE_THAN_ITERATORS}[name]
    tf.random.set_seed(1)
    noted = FingerprintedDataset(made(), has_shares=False)
    known: dict[int, Any] = {}
    for index, element in enumerate(noted.dataset):
        batch = tf.nest.flatten(element)[0].numpy()
        assert known.setdefault(noted.last(), (len(batch), batch[0])) == (len(batch), batch[0])
        assert (noted.first() == noted.last()) == (index == 0) or len(known) <= index
    assert len(known) > 1
    assert int(noted.dataset.cardinality()) == int(made().cardinality())


def test_every_rank_has_rank_0s_fingerprint_of_whole_batches(monkeypatch):
    """A rank that becomes the master when others are lost goes on with the checkpoints of rank 0."""
    data = tf.data.Dataset.range(12).batch(4)
    of_rank_0 = FingerprintedDataset(split.distribute(data, split.Division.among(2, 0)), has_shares=True)
    monkeypatch.setattr(split.runtime, "get_size", lambda: 2)
    monkeypatch.setattr(split.runtime, "get_rank", lambda: 1)
    of_rank_1 = FingerprintedDataset(split.whole(data, None), has_shares=True)
    for _ in zip(of_rank_0.dataset, of_rank_1.dataset, strict=True):
        assert of_rank_1.last() == of_rank_0.last()
