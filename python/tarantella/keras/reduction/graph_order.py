"""The one order in which the collectives of a graph run: the same on all ranks, or they would wait for each other for ever.

A graph has no order but its data's. An op that waits for other ranks holds one of TensorFlow's threads, of which there may be
one only; so whatever waits comes after all that waited before it, in the order in which the graph was made.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import tensorflow as tf

from tarantella.keras import context

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LAST, _USED = "_tnt_last_collective", "_tnt_used_reducers"  # attributes of a graph: they go when it goes


def last() -> list[tf.Tensor]:
    """What the last collective of this graph gave; empty if there is none, and when running eagerly."""
    return list(getattr(context.graph(), _LAST, []))


def done(tensors: Sequence[tf.Tensor]) -> None:
    """These come from a collective that was just added to the graph."""
    graph = context.graph()
    if graph is not None and tensors:
        setattr(graph, _LAST, list(tensors))


@contextmanager
def after_last() -> Iterator[None]:
    """What is added to the graph in this context runs after its last collective.

    Add only the collective itself: if what it takes were made in here as well, TensorFlow would keep that back instead, and
    may then do without it.
    """
    with tf.control_dependencies(last()):
        yield


def last_before(attachment: int) -> list[tf.Tensor]:
    """What a reducer has to wait for before it begins: if it is in this graph already, its earlier step must have ended."""
    graph = context.graph()
    used: set[int] = getattr(graph, _USED, set())
    if graph is not None:
        setattr(graph, _USED, used | {attachment})
    return last() if attachment in used else []
