"""Sums over the shards of a batch, in one order whatever ranks computed them.

A batch is always divided into as many shards, and what each of them gives (gradients, metrics, averages) is added up in one
balanced binary tree over their numbers. A rank has shards that follow each other, as many as any other rank, and both numbers
are powers of two: so the tree's lower levels are sums on one rank (here), and its upper ones sums over ranks (the reducer's
``tree``). Addition of floating-point numbers is not associative, but the same tree gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.keras import ops

if TYPE_CHECKING:
    from collections.abc import Sequence


class TreeSum:
    """Adds up lists of tensors that come one after the other, by the tree over their places; keeps as few as that allows.

    Of n lists it holds at most log2(n) + 1 at a time: two sums of equally many are added up at once.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[int, list[tf.Tensor], Any]] = []  # lists in a sum, the sum, and the weight it still needs

    def add(self, tensors: Sequence[tf.Tensor], weight: Any = 1.0) -> None:
        """The next list counts by this weight, a scalar, float64: if it is 0, as zeros, whatever the tensors hold."""
        lists, right, right_weight = 1, list(tensors), weight
        while self._nodes and self._nodes[-1][0] == lists:
            _, left, left_weight = self._nodes.pop()
            right = ops.tree_add(left, right, left_weight, right_weight)
            lists, right_weight = 2 * lists, 1.0
        self._nodes.append((lists, right, right_weight))

    def total(self) -> tuple[list[tf.Tensor], Any]:
        """The sum of a power of two of lists, and the weight that it still has to be multiplied with."""
        ((_, tensors, weight),) = self._nodes
        return tensors, weight
