"""The block partition of layers into stages, against all partitions that there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarantella.keras.pipeline.costs import Layers, best_partition, max_stages


@st.composite
def some_layers(draw: st.DrawFn) -> Layers:
    n = draw(st.integers(1, 7))

    def each(values: st.SearchStrategy, length: int) -> list:
        return draw(st.lists(values, min_size=length, max_size=length))

    times = each(st.integers(0, 20).map(float), n)
    return Layers(
        times, each(st.booleans(), n), each(st.integers(0, 8).map(lambda i: 1e6 * i), n + 1), each(st.booleans(), n + 1)
    )


def all_partitions(layers: Layers, stages: int) -> list[list[int]]:
    n = len(layers.times)
    found = []
    for begins in combinations([i for i in range(1, n) if layers.is_allowed[i]], stages - 1):
        bounds = [0, *begins, n]
        if all(any(layers.is_trained[a:b]) for a, b in pairwise(bounds)):
            found.append(list(begins))
    return found


def cost(layers: Layers, begins: list[int]) -> float:
    bounds = [0, *begins, len(layers.times)]
    return max(layers.cost(a, b) for a, b in pairwise(bounds))


@given(some_layers(), st.integers(1, 5))
def test_no_other_partition_is_better(layers, stages):
    others = all_partitions(layers, stages)
    found = best_partition(layers, stages)
    assert (found is None) == (not others)
    if found is not None:
        assert found in others
        assert cost(layers, found) == pytest.approx(min(cost(layers, begins) for begins in others))


@given(some_layers())
def test_the_most_stages(layers):
    most = max_stages(layers)
    assert not all_partitions(layers, most + 1)
    assert most == 0 or all_partitions(layers, most)


def test_messages_count():
    layers = Layers([1.0] * 4, [True] * 4, [0, 5e9, 0, 5e9, 0], [True] * 5)
    assert best_partition(layers, 2) == [2]
