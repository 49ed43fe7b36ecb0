"""Collectives on tensors by their rows, compared with NumPy."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS


@pytest.fixture(scope="module", params=[2, 3])
def found(request):
    return Findings(request.param, RANKS / "collectives/row_collectives.py")


@pytest.mark.parametrize("what", ["exchanges", "scatters", "gradients"])
def test_results(found, what):
    for on_rank in found[what]:
        assert all(on_rank), on_rank


def test_calls_that_differ_are_refused_on_all_ranks(found):
    for splits, gather, scatter, scalar, goes_on in found["refused"]:
        assert splits[0] == "InvalidArgumentError"
        assert splits[1].startswith("the splits of rank 1 do not say where its 2 rows go: give ")
        assert gather == [
            "MismatchError",
            "rank 1 calls all_gather of a float32 tensor of shape [2, 3] while rank 0 calls all_gather of a float32 tensor of "
            "shape [2, 2]: all ranks must make the same calls in the same order",
        ]
        assert scatter[0] == "MismatchError"
        assert "reduce_scatter with op sum of a float32 tensor of shape [4]" in scatter[1]
        assert scalar[0] == "ValueError"
        assert goes_on
