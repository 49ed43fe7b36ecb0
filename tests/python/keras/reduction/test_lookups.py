"""The graph of a step tells whether rows are looked up once for all samples, or for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tarantella.keras.reduction import lookups

OUTSIDE = tf.reshape(tf.range(400), [20, 20])  # too large for a copy in the graph
INDEX = tf.Variable([[1, 2, 3], [4, 5, 6]], trainable=False)


def traced(indices: Callable[[Any], Any], batch: int | None, answer: Callable[[Any], bool]) -> bool:
    """What is found of the indices in a function of a batch of lists of five numbers."""
    found = []

    @tf.function(input_signature=[tf.TensorSpec([batch, 5], tf.int32)])
    def step(x: Any) -> Any:
        computed = indices(x)
        found.append(answer(tf.reshape(computed, [-1])))
        return computed

    step.get_concrete_function()
    return found[0]


def deep(tensor: Any) -> Any:
    for _ in range(2000):  # deeper than Python calls go
        tensor = -tensor
    return tensor


ONCE = {
    "range": lambda x: tf.range(5),
    "range of a size": lambda x: tf.range(tf.shape(x)[1]),
    "range of the last size": lambda x: tf.range(tf.shape(x)[-1]),
    "from outside": lambda x: OUTSIDE[:3],
    "variable": lambda x: INDEX.read_value(),
    "deep": lambda x: deep(tf.range(5)),
}
FOR_EACH = {
    "data": lambda x: x,
    "deep": deep,
    "number of samples": lambda x: tf.range(tf.shape(x)[0]),
    "all sizes": lambda x: tf.broadcast_to(tf.range(5), tf.shape(x)),
    "random": lambda x: tf.random.uniform([5], 0, 5, tf.int32),
}


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("name", ONCE)
def test_rows_looked_up_once(name: str, batch: int | None):
    assert traced(ONCE[name], batch, lookups.are_common)


@pytest.mark.parametrize("name", FOR_EACH)
def test_rows_looked_up_for_each_sample(name: str):
    assert not traced(FOR_EACH[name], None, lookups.are_common)


def test_constants_that_are_repeated_for_each_sample_of_a_known_number():
    assert not traced(lambda x: tf.tile(tf.range(5)[tf.newaxis], [x.shape[0], 1]), 4, lookups.are_common)


def test_distinct_rows():
    assert traced(lambda x: tf.unique(x[:, 0])[0], None, lookups.are_distinct)
    assert not traced(lambda x: tf.unique(x[:, 0])[1], None, lookups.are_distinct)
    assert not traced(lambda x: x, None, lookups.are_distinct)


def test_nothing_is_known_of_eager_tensors():
    assert not lookups.are_common(tf.range(5))
    assert not lookups.are_distinct(tf.unique([1, 2])[0])
    assert len(lookups.uses(tf.range(5))) == 1
