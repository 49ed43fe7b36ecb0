"""The order in which backward makes the gradients, read from the graph of a step while it is traced, before it ever runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import collectives
from tarantella.keras import context


def reverse_order(n: int) -> list[int]:
    """The order from the last of n gradients to the first."""
    return list(range(n - 1, -1, -1))


def order(gradients: Sequence[Any]) -> list[int]:
    """The positions of the gradients in the order in which a run of the graph that is being traced will make them.

    TensorFlow starts an operation as soon as its inputs exist. So the longer the longest path of operations to a gradient is,
    the later the gradient comes, on the whole. The path's last operations, whose results nothing else uses, do not count: the
    gradients of one layer come together. Ties, and gradients that are made eagerly, keep the reverse order of the variables.
    """
    graph = context.graph()
    if graph is None:
        return reverse_order(len(gradients))
    depths = _Depths(graph)
    return sorted(reverse_order(len(gradients)), key=lambda i: depths.begin(gradients[i]))


def agreed_order(gradients: Sequence[Any]) -> list[int]:
    """`order` as rank 0 finds it: the graphs of two ranks may differ where their parts of a batch do. Collective."""
    return [int(i) for i in collectives.broadcast(np.array(order(gradients), np.int64))]


class _Depths:
    """The depth of each operation in a graph and in the graphs around it: the length of the longest path to it."""

    def __init__(self, graph: Any) -> None:
        self._depths: dict[Any, int] = {}
        self._outside: dict[Any, Any] = {}  # the operation that a branch's placeholder stands for
        self._add(graph)

    def _add(self, graph: Any) -> None:
        if (outer_graph := getattr(graph, "outer_graph", None)) is not None:
            self._add(outer_graph)
        for outer, inner in getattr(graph, "captures", ()):
            if hasattr(outer, "graph"):  # not eager
                self._outside[inner.op] = outer.op
        for operation in graph.get_operations():  # in the order of creation: inputs come first
            before = self._last_before(operation)
            self._depths[operation] = 0 if before is None else self._depths[before] + 1

    def _last_before(self, operation: Any) -> Any:
        if operation in self._outside:
            before = [self._outside[operation]]
        else:
            before = [tensor.op for tensor in operation.inputs] + operation.control_inputs
        known = [each for each in before if each in self._depths]
        return max(known, key=lambda each: self._depths[each], default=None)

    def begin(self, gradient: Any) -> int:
        """The depth at which the gradient's own operations begin."""
        if isinstance(gradient, tf.IndexedSlices):
            gradient = gradient.values
        before = None if gradient is None else self._last_before(gradient.op)
        while before is not None and sum(len(tensor.consumers()) for tensor in before.outputs) < 2:
            before = self._last_before(before)
        return -1 if before is None else self._depths[before]
