"""The sum of a batch's shards in one tree, on a rank by `ops.tree_add` and over ranks by a reducer: to the bits of NumPy's."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/reduction/tree_add.py", env={"TNT_TIMEOUT": "60"})


@pytest.mark.parametrize(("name", "sums"), [("eight_shards_on_one_rank", 6), ("eight_shards_on_all_ranks", 2)])
def test_the_sum_has_the_bits_of_the_tree(found, name, sums):
    assert found[name] == [[[True, True]] * sums] * SIZE


def test_tensors_with_equal_names_are_told_apart(found):
    assert [sums for sums, _ in found["equal_names"]] == [[2.0, 20.0, 200.0]] * SIZE


def test_a_weight_of_zero_contributes_zeros_whatever_is_there(found):
    assert found["a_weight_of_zero"] == [[[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 0.0]]] * SIZE


def test_inputs_that_others_need_stay(found):
    step = [[12.0, 22.0], [4.0, 4.0], [13.0, 24.0], [2.0, 2.0]]
    assert found["inputs_that_others_need_stay"] == [[*step, [11.0, 21.0], [1.0, 1.0], [10.0, 20.0], [1.0, 2.0]]] * SIZE


def test_denormals_are_kept(found):
    assert found["denormals_are_kept"] == [True] * SIZE


def test_every_type_and_shape(found):
    sums = [[name, [[4.0, 6.0]]] for name in ("float16", "bfloat16", "int8", "uint8", "int32", "int64")]
    assert found["every_type_and_shape"] == [[*sums, 9.0, [0, 3], 3.0, [], []]] * SIZE
    assert found["static_shapes"] == [[[None, 3], [3]]] * SIZE


def test_what_is_not_needed_is_not_computed(found):
    assert found["what_is_not_needed_is_not_computed"] == [0.0] * SIZE


def test_misuse_is_named(found):
    for fewer, weights, shapes, types, integers, number in found["misuse"]:
        assert fewer == ["ValueError", "tree_add: lists of 1 and 2 tensors cannot be added up"]
        assert weights == ["ValueError", "tree_add: 1 weights of 2 lists"]
        for _, text in (shapes, types):
            assert "[tarantella TNT_INVALID_ARGUMENT] tree_add: tensors 0 of the lists have different shapes or types" in text
        assert "int32 cannot be scaled by 0.5 when they are added: use 1 or 0" in integers[1]
        assert "scales[1] is nan, not a finite number" in number[1]


def test_ranks_that_differ_are_named(found):
    for kind, text in found["ranks_that_differ"]:
        assert kind == "MismatchError"
        assert "the same bits on any number of ranks (determinism) on rank 1, " in text
