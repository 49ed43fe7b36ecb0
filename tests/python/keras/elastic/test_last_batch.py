"""The batch that a step was given last can be had again, whatever it is made of."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

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
    iterator = iter(batches(kind))
    for expected in batches(kind):
        kept.take(iterator)
        assert isinstance(kept.iterator, tf.data.Iterator)  # by which Keras tells what it is given
        assert kept.iterator.element_spec == batches(kind).element_spec
        for _ in range(2):
            assert plain(next(kept.iterator)) == plain(expected)
            assert plain(kept.iterator.get_next()) == plain(expected)
            assert plain(kept.iterator.get_next_as_optional().get_value()) == plain(expected)
    with pytest.raises(tf.errors.OutOfRangeError):
        kept.take(iterator)


@pytest.mark.parametrize("kind", ["dense and text", "flags in a dict", "ragged", "sparse"])
def test_one_trace_is_for_all_elements(kind: str):
    """Also for the last one, which has fewer samples. The trace knows as much of shapes as that of an iterator does."""
    traced: list[Any] = []

    @tf.function
    def function(iterator: Any) -> Any:
        element = next(iterator)
        traced.append([part.shape for part in tf.nest.flatten(element, expand_composites=True)])
        return element

    kept = LastBatch(batches(kind))
    iterator = iter(batches(kind))
    for expected in batches(kind):
        kept.take(iterator)
        assert plain(function(kept.iterator)) == plain(expected)
    function(iter(batches(kind)))
    ours, of_an_iterator = traced
    assert [shape.as_list() for shape in ours] == [shape.as_list() for shape in of_an_iterator]


def test_batches_are_told_apart():
    kept, iterator, found = LastBatch(batches("ragged")), iter(batches("ragged")), set()
    for _ in batches("ragged"):
        kept.take(iterator)
        kept.note()
        assert kept.noted == kept.fingerprint()
        found.add(kept.noted)
    assert len(found) == 3
