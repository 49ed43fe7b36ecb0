"""A step of an elastic job changes weights only when all of its communication is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tarantella import variables
from tarantella.errors import UnsupportedError
from tarantella.keras import context
from tarantella.keras.reduction import collectives
from tarantella.keras.step import atomic


@pytest.fixture(autouse=True)
def _elastic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variables.ELASTIC, "0")


def traced(step: Callable[[tf.Variable], Any]) -> Any:
    weight = tf.Variable(1.0)

    @tf.function(autograph=False)
    def function() -> Any:
        result = step(weight)
        atomic.close_gates(context.graph())
        return result

    return function.get_concrete_function(), weight


def waits_for(operation: Any) -> set[str]:
    """The types of all operations that come before this one."""
    found, left = set(), [operation]
    while left:
        one = left.pop()
        for before in (*one.control_inputs, *(tensor.op for tensor in one.inputs)):
            if before not in found:
                found.add(before)
                left.append(before)
    return {one.type for one in found}


def test_the_update_waits_for_what_the_step_communicates_later():
    def step(weight: tf.Variable) -> Any:
        gradient, none, rows = atomic.behind_gate([tf.constant(0.5), None, tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))])
        assert none is None
        assert isinstance(rows, tf.IndexedSlices)
        weight.assign_sub(gradient)
        return collectives.total(tf.constant(3.0))

    function, weight = traced(step)
    (update,) = [one for one in function.graph.get_operations() if one.type == "AssignSubVariableOp"]
    assert "TntAllReduce" in waits_for(update)
    assert float(function()) == 3.0
    assert float(weight) == 0.5


def test_a_step_that_communicates_new_weights_is_refused():
    def step(weight: tf.Variable) -> Any:
        weight.assign_sub(atomic.behind_gate([tf.constant(0.5)])[0])
        return collectives.total(weight.read_value())

    with pytest.raises(UnsupportedError, match="after an optimizer has changed weights"):
        traced(step)


def test_without_elastic_there_is_no_gate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(variables.ELASTIC)
    gradients = [tf.constant(1.0)]
    assert atomic.behind_gate(gradients) is gradients


def test_a_step_without_a_gate_is_refused():
    with pytest.raises(UnsupportedError, match="no optimizer of the model updates weights"):
        traced(lambda weight: collectives.total(weight.assign_sub(1.0)))
