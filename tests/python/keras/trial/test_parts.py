"""The samples that are tried, and how their numbers are compared."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras.trial.comparison import Kind, NotComparable, common_kind, compared, difference_of_rows
from tarantella.keras.trial.parts import SAMPLES, parts_of, samples_in
from tarantella.keras.trial.parts import made_up_batch as made_up_batch


def rows_of(tensor):
    return tensor.to_list() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy().tolist()


@pytest.mark.parametrize("samples", [2, 3, 4, 5, 8, 30])
def test_the_longest_is_in_one_part(samples):
    lengths = np.random.default_rng(samples).permutation(np.arange(1, samples + 1))
    ragged = tf.RaggedTensor.from_row_lengths(np.arange(lengths.sum()), lengths)
    found = parts_of({"rows": ragged, "place": tf.range(samples), "none": None})
    assert found.samples == min(samples, SAMPLES) == sum(found.sizes)
    first, second = (part["rows"].row_lengths().numpy() for part in found.parts)
    assert first.max() < second.min()
    assert second.max() == samples
    assert found.whole["none"] is None
    assert rows_of(found.whole["rows"]) == rows_of(found.parts[0]["rows"]) + rows_of(found.parts[1]["rows"])
    for part in found.parts:  # rows stay with their samples
        for row, place in zip(part["rows"], part["place"], strict=True):
            assert row.numpy().tolist() == ragged[int(place)].numpy().tolist()


def test_texts_and_zeros_have_lengths():
    texts = parts_of(tf.constant(["a b c d", "a", "a b", "a b c"]))
    assert texts.parts[0].numpy().tolist() == [b"a", b"a b"]
    padded = parts_of(np.tril(np.ones((6, 6), np.float32))[::-1] + tf.zeros([6, 6]))
    assert np.count_nonzero(padded.parts[0], 1).tolist() == [1, 2]


def test_sparse_rows():
    dense = np.arange(1, 25).reshape(6, 4) * (np.arange(4) <= np.arange(6)[:, None] % 4)
    found = parts_of(tf.sparse.from_dense(dense))
    together = np.concatenate([tf.sparse.to_dense(part).numpy() for part in found.parts])
    assert tf.sparse.to_dense(found.whole).numpy().tolist() == together.tolist()
    assert sorted(map(tuple, together)) == sorted(map(tuple, dense))


def test_tensors_of_several_sizes_are_divided_alike():
    batch = tf.range(6), tf.range(12)
    assert samples_in(batch) == 6
    few, many = parts_of(batch).parts[0]
    assert [int(number) % 6 for number in many] == [*few.numpy()] * 2


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (tf.zeros([1, 3]), "fewer than two samples"),
        ((tf.zeros([4, 3]), tf.zeros([])), "a number that is not one of a sample"),
        (3.0, "other things than tensors"),
    ],
)
def test_what_cannot_be_divided_is_said(batch, why):
    with pytest.raises(NotComparable, match=why):
        parts_of(batch)


def test_kinds():
    weights = (0.25, 0.75)
    assert compared(3.0, [6.0, 2.0], weights) is Kind.MEAN
    assert compared(8.0, [6.0, 2.0], weights) is Kind.SUM
    assert compared(5.0, [6.0, 2.0], weights) is Kind.COUPLED
    assert compared(0.0, [0.0, 0.0], weights) is Kind.UNKNOWN
    assert compared(np.nan, [6.0, 2.0], weights) is Kind.UNKNOWN
    assert common_kind([Kind.MEAN, Kind.UNKNOWN]) is Kind.MEAN
    assert common_kind([Kind.MEAN, Kind.SUM]) is Kind.COUPLED
    assert common_kind([]) is Kind.UNKNOWN


def test_rows_are_compared_one_by_one():
    whole = np.ones((4, 3))
    other = whole.copy()
    other[2] *= 1.01
    assert difference_of_rows(whole, [whole[:1], whole[1:]], (1, 3)) == 0
    assert difference_of_rows(whole, [other[:1], other[1:]], (1, 3)) == pytest.approx(0.01)
    assert difference_of_rows(whole, [whole[:1, :2], whole[1:]], (1, 3)) == np.inf
    nan = np.where(other > 1, np.nan, other)
    assert difference_of_rows(whole, [nan[:1], nan[1:]], (1, 3)) == np.inf
    assert difference_of_rows(nan, [nan[:1], nan[1:]], (1, 3)) == 0
    texts = np.array([b"a", b"b"])
    assert difference_of_rows(texts, [texts[:1], texts[1:]], (1, 1)) == 0
    with pytest.raises(NotComparable, match="one row for each sample"):
        difference_of_rows(np.ones((2, 3)), [whole[:1], whole[1:]], (1, 3))


def test_made_up_batches_differ():
    spec = (tf.TensorSpec([None, 4]), tf.TensorSpec([None, 3], tf.int32), None)
    x, y, weights = made_up_batch(spec)
    assert weights is None
    assert len({tuple(row) for row in x.numpy()}) == SAMPLES
    assert set(y.numpy().ravel()) == {0, 1}
    with pytest.raises(NotComparable, match="string"):
        made_up_batch(tf.TensorSpec([None], tf.string))
