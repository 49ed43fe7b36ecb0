"""`tnt.all_gather` of tensors: rows of all ranks, however many each has, and the gradient of what is made of them."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZES = [2, 3]


@pytest.fixture(scope="module", params=SIZES, ids=[f"{size}-ranks" for size in SIZES])
def found(request):
    return Findings(request.param, RANKS / "collectives/gather_gradient.py", env={"TNT_TIMEOUT": "60"})


def test_values(found):
    for on_rank in found["values"]:
        assert len(on_rank) == 14
        assert all(on_rank.values()), on_rank
    assert all(found["special_values"])


def test_gradients(found):
    for errors in found["gradients"]:
        assert len(errors) == 4
        assert max(errors) < 1e-4, errors


def test_a_loop_of_ones_own(found):
    assert max(found["in_a_loop_of_ones_own"]) < 1e-6


def test_what_is_refused(found):
    for scalar, text, in_shards in found["refused"]:
        assert scalar[0] == "ValueError"
        assert "a scalar has none" in scalar[1]
        assert text[0] == "TypeError"
        assert not in_shards or (in_shards[0] == "UnsupportedError" and "reproducible=V" in in_shards[1])
    assert found["refused"][0][2] or len(found["refused"]) == 3


def test_arrays_are_stacked(found):
    assert all(shape == [len(found["arrays_are_stacked"]), 2, 3] for shape in found["arrays_are_stacked"])
