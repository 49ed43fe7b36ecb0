"""One order for the collectives of a graph: the same on all ranks, or they would wait for each other for ever.

TensorFlow orders operations by their data alone. An op that waits for other ranks holds one of TensorFlow's threads, and there
may be only one. So each op that waits is added after all that were added before it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tensorflow as tf

from tarantella.keras import context

_LAST, _USED = "_tnt_last_collective", "_tnt_used_reducers"  # attributes of a graph: they go when it goes


def last_outputs() -> list[tf.Tensor]:
    """The outputs of the last collective in this graph; empty if there is none, and when running eagerly."""
    return list(getattr(context.graph(), _LAST, []))


def record(tensors: Sequence[tf.Tensor]) -> None:
    """These are the outputs of a collective that was just added to the graph."""
    graph = context.graph()
    if graph is not None and tensors:
        setattr(graph, _LAST, list(tensors))


@contextmanager
def after_last() -> Iterator[None]:
    """Operations that are added in this context run after the graph's last collective.

    Add only the collective itself. If its inputs were made in here as well, TensorFlow would delay these instead, and might
    drop the collective's own dependency.
    """
    with tf.control_dependencies(last_outputs()):
        yield


@contextmanager
def apart() -> Iterator[None]:
    """Collectives that are added in this context have an order among themselves, and none with others of the graph.

    For what a session of TensorFlow 1 runs by itself: earlier ones would run with it, and it with each later one.
    """
    graph, before = context.graph(), last_outputs()
    setattr(graph, _LAST, [])
    try:
        yield
    finally:
        setattr(graph, _LAST, before)


def outputs_before(attachment: int) -> list[tf.Tensor]:
    """The outputs that a reducer's step must wait for: if the graph has a step of this reducer already, that step's end."""
    graph = context.graph()
    used: set[int] = getattr(graph, _USED, set())
    if graph is not None:
        setattr(graph, _USED, used | {attachment})
    return last_outputs() if attachment in used else []
