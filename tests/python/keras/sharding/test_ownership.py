"""The owners of variables: balanced, and the same wherever they are computed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarantella.keras.sharding.weights import owners_of

COSTS = st.lists(st.integers(0, 1 << 40), max_size=40)


def loads(costs: list[int], ranks: int) -> list[int]:
    owners = owners_of(costs, ranks)
    assert len(owners) == len(costs)
    return [sum(c for c, owner in zip(costs, owners, strict=True) if owner == rank) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([8, 4, 4], [8, 8]),
        ([1, 1, 1, 1], [2, 2]),
        ([5], [5, 0]),
        ([], [0, 0]),
        ([3, 3, 2, 2, 2], [7, 5]),  # largest first; the best would be 6 and 6
    ],
)
def test_two_ranks(costs, expected):
    assert loads(costs, 2) == expected


@given(COSTS, st.integers(1, 9))
def test_no_rank_has_more_than_the_mean_and_the_largest(costs, ranks):
    assert max(loads(costs, ranks)) <= sum(costs) / ranks + max(costs, default=0)


@given(COSTS, st.integers(1, 9))
def test_at_most_four_thirds_of_a_lower_bound(costs, ranks):
    ordered = sorted(costs, reverse=True)
    pair = ordered[ranks - 1] + ordered[ranks] if len(costs) > ranks else 0
    bound = max(sum(costs) / ranks, max(costs, default=0), pair)
    assert max(loads(costs, ranks)) <= bound * (4 / 3) + 1
