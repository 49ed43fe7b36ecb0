"""Sums over the shards of a batch, in one order, whichever ranks computed them.

A batch is always cut into the same number of shards. Their results (gradients, metrics, averages) are added up in one balanced
binary tree. Each rank has consecutive shards, as many as any other rank, and both numbers are powers of two. So the lower
levels of the tree are sums on one rank (here), and the upper ones are sums over ranks (the reducer's ``tree``). Floating-point
addition is not associative, but the same tree gives the same bits.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras.reduction import ops

_FAN_IN = 4  # terms of one addition: a power of two. More terms take more memory, and read and write partial sums less often


class TreeSum:
    """Adds up lists of tensors that come one after the other, in the tree over their places.

    Four sums of equally many lists become one as soon as they exist. So at most three sums of each level, of 4 ** level lists,
    are in memory, and the four that are being added.
    """

    def __init__(self) -> None:
        self._nodes: list[tuple[int, list[tf.Tensor], Any]] = []  # lists in a sum, the sum, and the weight it still needs

    def add(self, tensors: Sequence[tf.Tensor], weight: Any = 1.0) -> None:
        """Adds ``weight * tensors``. The weight is a scalar, float64; 0 contributes zeros, whatever the tensors hold."""
        self._nodes.append((1, list(tensors), weight))
        while len(self._nodes) >= _FAN_IN and self._nodes[-_FAN_IN][0] == self._nodes[-1][0]:
            self._add_last(_FAN_IN)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self._nodes

    def total(self) -> tuple[list[tf.Tensor], Any]:
        """The sum, and the weight that it still has to be multiplied with. The number of lists must be a power of two."""
        if len(self._nodes) > 1:
            self._add_last(len(self._nodes))
        ((_, tensors, weight),) = self._nodes
        return tensors, weight

    def _add_last(self, n: int) -> None:
        sizes, lists, weights = zip(*self._nodes[-n:], strict=True)
        self._nodes[-n:] = [(sum(sizes), ops.tree_add(lists, weights), 1.0)]


class RunningSum(TreeSum):
    """Adds each list to the sum of those before. Two lists are in memory at most; the last bit depends on their order."""

    def add(self, tensors: Sequence[tf.Tensor], weight: Any = 1.0) -> None:
        self._nodes.append((1, list(tensors), weight))
        if len(self._nodes) == 2:
            self._add_last(2)
