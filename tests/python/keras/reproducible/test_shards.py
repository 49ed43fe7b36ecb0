"""Sums over the shards of a batch, and the random numbers that each shard draws."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.data.split import Division
from tarantella.keras.reproducible.shards import TreeSum

random = np.random.default_rng(0)


def tree(values: list[np.ndarray]) -> np.ndarray:
    """An independent one, from the root."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return tree(values[:half]) + tree(values[half:])


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("in_graph", [False, True])
def test_sums_are_taken_in_the_tree(n, in_graph):
    values = [(random.normal(size=1000) * 10.0 ** random.integers(-3, 3)).astype(np.float32) for _ in range(n)]
    weights = random.uniform(size=n)

    def total() -> tf.Tensor:
        added = TreeSum()
        for value, weight in zip(values, weights, strict=True):
            added.add([tf.constant(value)], tf.constant(weight))
        (found,), weight = added.total()
        return found * tf.cast(weight, tf.float32)

    wanted = tree([v * np.float32(w) for v, w in zip(values, weights, strict=True)])
    np.testing.assert_array_equal(tf.function(total)() if in_graph else total(), wanted)


def test_few_sums_are_kept():
    added = TreeSum()
    for i in range(1, 65):
        added.add([tf.constant(1.0)])
        assert len(added._nodes) == i // 64 + i // 16 % 4 + i // 4 % 4 + i % 4  # its digits to the base 4


def test_a_shard_of_no_weight_adds_nothing():
    added = TreeSum()
    added.add([tf.constant([1.0, 2.0])], 1.0)
    added.add([tf.constant([np.nan, np.inf])], 0.0)
    np.testing.assert_array_equal(added.total()[0][0], [1.0, 2.0])


def test_ranks_have_shards_that_follow_each_other():
    assert Division.among(4, 1) == Division(4, range(1, 2))
    assert [Division.among(4, rank, 8).own for rank in range(4)] == [range(2), range(2, 4), range(4, 6), range(6, 8)]


def over_ranks(terms: list[str]) -> str:
    """The sum of the ranks' terms as the C++ core takes it: `left_terms` in kernels/cpu/register_sums.hpp. Zeros are empty."""
    if len(terms) == 1:
        return terms[0]
    half = (1 << (len(terms).bit_length() - 1)) // 2
    left = half + min(half, len(terms) - 2 * half)
    return added(over_ranks(terms[:left]), over_ranks(terms[left:]))


def added(a: str, b: str) -> str:
    return f"({a}+{b})" if a and b else a or b


def balanced(terms: list[str]) -> str:
    half = len(terms) // 2
    return added(balanced(terms[:half]), balanced(terms[half:])) if half else terms[0]


@pytest.mark.parametrize("shards", [1, 2, 4, 8, 16])
def test_any_number_of_ranks_takes_the_sums_of_one(shards):
    wanted = balanced([f"{i}" for i in range(shards)])
    for size in range(1, 34):
        own = [Division.among(size, rank, shards).own for rank in range(size)]
        assert [shard for each in own for shard in each if shard < shards] == [*range(shards)], (size, own)
        terms = ["" if each.start == shards else balanced([f"{i}" for i in each]) for each in own]
        assert over_ranks(terms) == wanted, (size, own)


def test_replicas_share_any_number_that_they_divide():
    assert [Division.among(3, replica, 6).own for replica in range(3)] == [range(2), range(2, 4), range(4, 6)]


def test_every_shard_and_every_step_draws_other_numbers():
    """And the first shard of the first step those that one device would draw."""
    generator = keras.random.SeedGenerator(5)
    state = generator.state.value

    def drawn(of: tf.Tensor) -> tuple[float, ...]:
        generator.state.assign(of)
        return tuple(float(number) for number in keras.random.uniform((3,), seed=generator))

    alone = drawn(tf.identity(state))
    found, of_step = [], tf.constant([5, 0], tf.uint32)
    for _ in range(4):
        found += [drawn(adapter.seed_of_shard(of_step, shard)) for shard in range(64)]
        of_step = adapter.seed_of_next_step(of_step)
    assert found[0] == alone
    assert len(set(found)) == len(found)
