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
from tarantella.keras.xla import operations


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
        given = [tf.constant(0.5), None, tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))]
        with atomic.behind_gate(given) as (gradient, none, rows):
            assert none is None
            assert isinstance(rows, tf.IndexedSlices)
            weight.assign_sub(gradient)
        return collectives.total(tf.constant(3.0))

    function, weight = traced(step)
    (update,) = [one for one in function.graph.get_operations() if one.type == "AssignSubVariableOp"]
    assert "TntAllReduce" in waits_for(update)
    assert float(function()) == 3.0
    assert float(weight) == 0.5


def test_what_needs_no_gradient_waits_as_well():
    def step(weight: tf.Variable) -> Any:
        with atomic.behind_gate([tf.constant(0.5)]):
            weight.assign(0.5 * weight)  # as weights decay
        return collectives.total(tf.constant(3.0))

    function, _ = traced(step)
    (update,) = [one for one in function.graph.get_operations() if one.type == "AssignVariableOp"]
    assert "TntAllReduce" in waits_for(update)


def test_what_a_step_changes_before_the_gate_is_told():
    early, inside, read, late = (tf.Variable(1.0) for _ in range(4))
    told: list[Any] = []
    change = tf.function(lambda: inside.assign(2.0 * inside), autograph=False)
    look = tf.function(lambda: 2.0 * read, autograph=False)

    def step(element: Any) -> Any:
        early.assign(early + change())
        with atomic.behind_gate([element * look()]) as (gradient,):
            late.assign_sub(gradient)
        return collectives.total(tf.constant(3.0))

    tf.function(atomic.atomic(step, lambda *found: told.append(found)), autograph=False).get_concrete_function(tf.constant(1.0))
    ((graph, handles),) = told
    assert {id(handle) for handle in handles} == {id(one.handle) for one in (early, inside)}
    assert set(map(id, operations.unknown(graph, [late]))) == {id(one) for one in (early, inside, read)}
    assert set(map(id, operations.changed_unknown(graph, [late]))) == {id(early), id(inside)}


def test_a_step_that_communicates_new_weights_is_refused():
    def step(weight: tf.Variable) -> Any:
        with atomic.behind_gate([tf.constant(0.5)]) as (gradient,):
            weight.assign_sub(gradient)
        return collectives.total(weight.read_value())

    with pytest.raises(UnsupportedError, match="after an optimizer has changed weights"):
        traced(step)


def test_without_elastic_there_is_no_gate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(variables.ELASTIC)
    gradients = [tf.constant(1.0)]
    with atomic.behind_gate(gradients) as given:
        assert given is gradients


def test_a_step_without_a_gate_is_refused():
    with pytest.raises(UnsupportedError, match="no optimizer of the model updates weights"):
        traced(lambda weight: collectives.total(weight.assign_sub(1.0)))
