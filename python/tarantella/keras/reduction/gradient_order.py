"""In which order backward makes the gradients: read from the graph of a step while it is traced, before it ever runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import collectives
from tarantella.keras import context

if TYPE_CHECKING:
    from collections.abc import Sequence


def usual_order(n: int) -> list[int]:
    """From the last of n gradients to the first."""
    return list(range(n - 1, -1, -1))


def order(gradients: Sequence[Any]) -> list[int]:
    """The positions of the gradients in the order in which a run of the graph that is being traced will have them.

    TensorFlow starts operations as soon as their inputs exist, first come, first served: on the whole, the more operations the
    longest way to a gradient has, the later it comes. Its own last operations do not count, which nothing else takes from: the
    gradients of one layer come together. Where that does not decide, and when running eagerly, the order is the usual one.
    """
    graph = context.graph()
    if graph is None:
        return usual_order(len(gradients))
    ways = _Ways(graph)
    return sorted(usual_order(len(gradients)), key=lambda i: ways.begin(gradients[i]))


def agreed_order(gradients: Sequence[Any]) -> list[int]:
    """`order` as rank 0 finds it: graphs of ranks may differ in how they treat a part of a batch. Collective."""
    return [int(i) for i in collectives.broadcast(np.array(order(gradients), np.int64))]


class _Ways:
    """How many operations of a graph, and of those around it, come before others."""

    def __init__(self, graph: Any) -> None:
        self._lengths: dict[Any, int] = {}
        self._outside: dict[Any, Any] = {}  # by what stands for it in a branch
        self._add(graph)

    def _add(self, graph: Any) -> None:
        if (outer_graph := getattr(graph, "outer_graph", None)) is not None:
            self._add(outer_graph)
        for outer, inner in getattr(graph, "captures", ()):
            if hasattr(outer, "graph"):  # not eager
                self._outside[inner.op] = outer.op
        for operation in graph.get_operations():  # as they were made: each after what it takes
            before = self._last_before(operation)
            self._lengths[operation] = 0 if before is None else self._lengths[before] + 1

    def _last_before(self, operation: Any) -> Any:
        if operation in self._outside:
            before = [self._outside[operation]]
        else:
            before = [tensor.op for tensor in operation.inputs] + operation.control_inputs
        known = [each for each in before if each in self._lengths]
        return max(known, key=lambda each: self._lengths[each], default=None)

    def begin(self, gradient: Any) -> int:
        """The length of the longest way to the first of the gradient's own operations."""
        if isinstance(gradient, tf.IndexedSlices):
            gradient = gradient.values
        before = None if gradient is None else self._last_before(gradient.op)
        while before is not None and sum(len(tensor.consumers()) for tensor in before.outputs) < 2:
            before = self._last_before(before)
        return -1 if before is None else self._lengths[before]
