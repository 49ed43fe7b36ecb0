"""Sums over the shards of a batch, in one order whatever ranks computed them.

A batch is always divided into as many shards, and what each of them gives (gradients, metrics, averages) is added up in one
balanced binary tree over their numbers. A rank has shards that follow each other, as many as any other rank, and both numbers
are powers of two: so the tree's lower levels are sums on one rank (here), and its upper ones sums over ranks (the reducer's
``tree``). Addition of floating-point numbers is not associative, but the same tree gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.keras.reduction import ops

if TYPE_CHECKING:
    from collections.abc import Sequence


_AT_ONCE = 4  # sums that become one: a power of two. More would be less to read and write again, and more memory


class TreeSum:
    """Adds up lists of tensors that come one after the other, by the tree over their places; keeps few of them.

    Four sums of equally many lists become one as soon as they are there: it holds at most three sums of each level, 4 ** level
    lists, and the four that are added up.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[int, list[tf.Tensor], Any]] = []  # lists in a sum, the sum, and the weight it still needs

    def add(self, tensors: Sequence[tf.Tensor], weight: Any = 1.0) -> None:
        """The next list counts by this weight, a scalar, float64: if it is 0, as zeros, whatever the tensors hold."""
        self._nodes.append((1, list(tensors), weight))
        while len(self._nodes) >= _AT_ONCE and self._nodes[-_AT_ONCE][0] == self._nodes[-1][0]:
            self._add_last(_AT_ONCE)

    def total(self) -> tuple[list[tf.Tensor], Any]:
        """The sum of a power of two of lists, and the weight that it still has to be multiplied with."""
        if len(self._nodes) > 1:
            self._add_last(len(self._nodes))
        ((_, tensors, weight),) = self._nodes
        return tensors, weight

    def _add_last(self, n: int) -> None:
        sizes, lists, weights = zip(*self._nodes[-n:], strict=True)
        self._nodes[-n:] = [(sum(sizes), ops.tree_add(lists, weights), 1.0)]
