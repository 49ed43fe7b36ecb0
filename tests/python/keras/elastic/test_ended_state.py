"""A rank that is behind gets what others had found before their callbacks changed it, and a step finds no copies of weights."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from tarantella import collectives
from tarantella.keras import adapter
from tarantella.keras.elastic.ended_state import EndedState


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> list[tf.Variable]:
    monkeypatch.setattr(adapter, "unwrap", lambda variable: variable)
    return [tf.Variable(tf.ones([100, 100])), tf.Variable(0.5), tf.Variable(3, dtype=tf.int64), tf.Variable([True])]


def given(monkeypatch: pytest.MonkeyPatch, ended: EndedState) -> dict[int, Any]:
    """What the source gives to the ranks that are behind, by the variables' places."""
    found: list[dict[int, Any]] = []
    monkeypatch.setattr(collectives, "broadcast_object", lambda held, root: found.append(held) or held)
    ended.give(0, is_behind=False)
    return found[0]


def test_what_was_changed_is_given_as_it_was(monkeypatch, variables):
    ended = EndedState(lambda: variables)
    ended.note()
    variables[1].assign(0.5 * variables[1])
    ended.let_go()
    assert given(monkeypatch, ended) == {1: 0.5}
    variables[0].assign_add(tf.ones([100, 100]))  # by a step that all make again: the rank behind has no part in it
    ended.let_go()
    assert given(monkeypatch, ended) == {1: 0.5}
    ended.give(0, is_behind=True)
    assert float(variables[1]) == 0.5
    ended.pass_over()
    ended.let_go()
    assert given(monkeypatch, ended) == {}


def test_other_variables_are_noted_when_they_are_known(monkeypatch, variables):
    known = variables[:1]
    ended = EndedState(lambda: known)
    ended.note()
    known.append(variables[2])
    ended.forget_variables()
    ended.note()
    variables[2].assign_add(1)
    ended.let_go()
    assert given(monkeypatch, ended) == {1: 3}
