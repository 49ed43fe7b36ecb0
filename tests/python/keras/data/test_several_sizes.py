"""Batches whose tensors have several sizes: a rank has the same part of every tensor, so that one weight is right for all."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
import tensorflow as tf

from support.findings import Findings
from support.launch import RANKS
from tarantella.keras.adapter import datasets
from tarantella.keras.data import split

# ------------------------------------------------------------------------------------------------------- the split


def as_dense(array: np.ndarray) -> tf.Tensor:
    return tf.constant(array)


def as_ragged(array: np.ndarray) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_tensor(array)


def as_sparse(array: np.ndarray) -> tf.SparseTensor:
    return tf.sparse.from_dense(array)


def array_of(tensor: object) -> np.ndarray:
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(tensor)).numpy()
    return tensor.to_tensor().numpy() if isinstance(tensor, tf.RaggedTensor) else tensor.numpy()


pytestmark = pytest.mark.long

SIZES = [(5, 20), (20, 5), (8, 4, 12), (7, 3), (6, 6), (9, 18)]


@pytest.mark.parametrize("kind", [as_dense, as_ragged, as_sparse])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
def test_each_rank_has_the_same_part_of_every_tensor(sizes, known, kind):
    arrays = [np.arange(1, 2 * size + 1).reshape(size, 2) for size in sizes]
    batch = tuple(kind(array) for array in arrays)
    dataset = tf.data.Dataset.from_tensors(batch)
    if not known:  # as a zip of batches has it
        dataset = tf.data.Dataset.zip(
            tuple(tf.data.Dataset.from_tensors(t).unbatch().batch(s) for t, s in zip(batch, sizes, strict=True))
        )
    groups = math.gcd(*sizes)
    for shards in (2, 3, 4):
        of_ranks = []
        for rank in range(shards):
            division = split.Division.among(shards, rank)
            (((part, (samples, total, _)),),) = split.distribute(dataset, division)
            of_ranks.append([array_of(tensor) for tensor in part])
            mine = len(range(rank, groups, shards))
            assert int(total) == sizes[0]
            assert int(samples) == mine * sizes[0] // groups
            for array, found in zip(arrays, of_ranks[-1], strict=True):
                index = np.arange(len(array)) % groups
                own = index % shards == rank if mine else index == 0  # a rank without a group computes the first, for nothing
                np.testing.assert_array_equal(found, array[own])
                if groups % shards == 0:
                    np.testing.assert_array_equal(found, array[rank::shards])


def test_a_part_that_may_be_empty_says_so():
    dataset = tf.data.Dataset.from_tensors((tf.zeros([4, 3]), tf.zeros([6, 3])))
    may_be_empty = [split.may_be_empty(split.distribute(dataset, split.Division.among(3, rank))) for rank in range(3)]
    assert may_be_empty == [False, False, True]
    shapes = [spec.shape[0] for spec in split.batch_spec(split.distribute(dataset, split.Division.among(2, 1)))]
    assert shapes == [2, 3]


def pairs(number: int, batch: int, **how: object) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((np.zeros((number, 2)), np.zeros(number))).batch(batch, **how)


def test_which_datasets_have_one_size():
    """Of these nothing is asked at run time."""
    zipped = tf.data.Dataset.zip((pairs(8, 4), pairs(8, 2)))
    for one in (pairs(9, 4).prefetch(2).repeat(2).take(3), pairs(9, 4).shuffle(3).cache(), zipped.unbatch().batch(3)):
        assert datasets.has_one_size(one)
    for several in (zipped, zipped.prefetch(1), pairs(8, 4).map(lambda x, y: (x, y))):
        assert not datasets.has_one_size(several)
    assert datasets.has_one_size(tf.data.Dataset.range(4).batch(2).map(lambda i: i))
    assert datasets.batch_sizes(zipped.map(lambda a, b: (a, b))) == [2, 4]
    assert datasets.batch_sizes(pairs(8, 4)) == []
    assert datasets.batch_sizes(tf.data.Dataset.zip((pairs(8, 4, drop_remainder=True), pairs(8, 2)))) == [2, 4]


# ----------------------------------------------------------------------------------------------- training, on ranks


@pytest.fixture(scope="module", params=[(3, ""), (2, "1")], ids=["3", "legacy-2"])
def found(request):
    size, legacy = request.param
    if legacy and importlib.util.find_spec("tf_keras") is None:
        pytest.skip("tf_keras is not installed: pip install --no-deps tf_keras")
    return Findings(size, RANKS / "keras/data/several_sizes.py", env={"TF_USE_LEGACY_KERAS": legacy or "0"})


def same(together: list[list[float]], alone: list[list[float]]) -> None:
    for ours, truth in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours, truth, rtol=2e-5, atol=2e-6)


def test_training_on_zipped_batches(found):
    on_ranks = found["zipped"]
    for name, (_, alone) in on_ranks[0].items():
        for of_rank in on_ranks:
            same(of_rank[name][0], alone)
            assert of_rank[name][0] == on_ranks[0][name][0]


def test_the_two_views_of_a_sample_stay_together(found):
    for together, alone in found["two_views"]:
        same(together, alone)


def test_shards(found):
    for together, alone in found["shards"]:
        same(together, alone)


def test_ranks_without_work_are_named(found):
    for warnings in found["idle_ranks"]:
        assert any(
            text.startswith("training data: batches with tensors of 4 and 7 samples can be divided into 1 parts")
            for text in warnings
        )


def test_own_batches(found):
    for alone, together, (kind, text) in found["own_batches"]:
        same(together, alone)
        assert kind == "MismatchError"
        assert "tensors of several sizes, in other proportions" in text


def test_predictions(found):
    for doubled, (kind, text) in found["predicted"]:
        assert doubled
        assert kind == "UnsupportedError"
        assert "the batches have tensors of several sizes" in text
