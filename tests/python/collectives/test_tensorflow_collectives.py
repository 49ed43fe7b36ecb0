"""The rank-level collectives on tensors: results are tensors of the same type and shape."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2


@pytest.fixture(scope="module", params=["0", "1"], ids=["keras", "legacy keras"])
def found(request):
    return Findings(SIZE, RANKS / "collectives/tensorflow_collectives.py", env={"TF_USE_LEGACY_KERAS": request.param})


def test_sums(found):
    kinds = ("float32", "float64", "float16", "bfloat16", "int32", "uint64")
    expected = [[True, kind, [1, 3], [[0.0, 3.0, 4.0]]] for kind in kinds]
    assert found["sums"] == [[*expected, [True, "bool", [1, 3], [[0.0, 1.0, 1.0]]]]] * SIZE


def test_in_structures(found):
    expected = [
        [True, "float32", [1, 1], [[3.0]]],
        [True, "int64", [], 1.0],
        [True, "float32", [], 5.0],
        [2.0, 2.0],
        [True, "float32", [0, 3], []],
    ]
    assert found["in_structures"] == [expected] * SIZE


def test_broadcasts_and_gathers(found):
    expected = [
        [True, "float32", [2, 2], [[1.0, 1.0], [1.0, 1.0]]],
        [True, "bool", [], 1.0],
        [True, "int32", [3], [0.0, 1.0, 1.0]],
    ]
    assert found["broadcasts_and_gathers"] == [expected] * SIZE


def test_what_is_refused(found):
    for inside, text, out in found["what_is_refused"]:
        assert inside[0] == "TypeError"
        assert inside[1].startswith("inputs is a tensor of a graph: inside a tf.function use tnt.all_reduce")
        assert text[1].startswith("inputs is a tensor of string: use numbers or booleans")
        assert out == ["TypeError", "out is for arrays: a tensor's reduction is a new tensor"]
