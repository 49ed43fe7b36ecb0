"""The batch that a step was given last can be had again, whatever it is made of."""

from __future__ import annotations

import time
from typing import Any

import pytest
import tensorflow as tf

from tarantella.keras.checkpoint.position import FingerprintedDataset
from tarantella.keras.elastic.last_batch import LastBatch

N = 10


def batches(kind: str) -> tf.data.Dataset:
    numbers = tf.range(N, dtype=tf.int64)
    parts: dict[str, Any] = {
        "dense and text": (tf.cast(numbers, tf.float32), tf.strings.as_string(numbers)),
        "flags in a dict": {"flag": numbers % 2 == 0, "number": numbers},
        "ragged": tf.RaggedTensor.from_row_lengths(tf.range(N * (N - 1) // 2), numbers),
        "sparse": tf.sparse.from_dense(tf.one_hot(numbers, N)),
    }
    return tf.data.Dataset.from_tensor_slices(parts[kind]).batch(4)


def plain(element: Any) -> list[Any]:
    dense = [tf.sparse.to_dense(t) if isinstance(t, tf.SparseTensor) else t for t in tf.nest.flatten(element)]
    return [t.to_list() if isinstance(t, tf.RaggedTensor) else t.numpy().tolist() for t in dense]


@pytest.mark.parametrize("kind", ["dense and text", "flags in a dict", "ragged", "sparse"])
def test_each_element_can_be_had_again(kind: str):
    kept = LastBatch(batches(kind))
    for element, expected in zip(iter(kept.dataset), batches(kind), strict=True):
        assert plain(element) == plain(expected)
        for _ in range(2):
            again = kept.again()
            assert again.element_spec == kept.dataset.element_spec  # so that nothing is traced for it
            assert plain(next(again)) == plain(expected)
            with pytest.raises(StopIteration):
                next(again)


def test_nothing_is_read_ahead_of_what_a_checkpoint_notes():
    """Both look at each batch: neither may see one before it is given."""
    noted = FingerprintedDataset(tf.data.Dataset.range(100).batch(1), has_shares=False)
    kept = LastBatch(noted.dataset)
    expected = FingerprintedDataset(tf.data.Dataset.range(100).batch(1), has_shares=False)
    for element, _ in zip(kept.dataset, expected.dataset, strict=True):
        time.sleep(0.001)  # what reads ahead has the time for it
        assert noted.last() == expected.last()
        assert plain(next(kept.again())) == plain(element)


def test_nothing_is_read_ahead_of_the_user():
    kept = LastBatch(tf.data.Dataset.range(100).batch(1).prefetch(10))
    iterator = iter(kept.dataset)
    for i in range(20):
        next(iterator)
        assert plain(next(kept.again())) == [[i]]
