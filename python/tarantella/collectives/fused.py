"""The sums of many arrays with one collective for each element type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella.collectives import pending
from tarantella.collectives.reduction import ReductionOp, travel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tarantella.collectives.group import Group


class FusedSum:
    """The elementwise sums of arrays over a group's ranks, started. Collective on the group.

    Args:
        group: whose members call it.
        arrays: of the same types and shapes on all members; may change from now on.

    Raises:
        TypeError: an array does not hold numbers or booleans.
    """

    def __init__(self, group: Group, arrays: Sequence[NDArray[Any]]) -> None:
        self._shapes = [array.shape for array in arrays]
        self._parts = []
        ways = {dtype: travel(dtype, ReductionOp.SUM) for dtype in dict.fromkeys(array.dtype for array in arrays)}
        for dtype, way in ways.items():
            members = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            fused = np.concatenate([arrays[i].reshape(-1) for i in members])
            self._parts.append((members, way, pending.all_reduce(group, way.encode(fused), way.op)))

    def wait(self) -> list[NDArray[Any]]:
        """The sums, as new arrays of the same types and shapes."""
        sums: list[Any] = [None] * len(self._shapes)
        for members, way, work in self._parts:
            fused, end = way.decode(work.wait()), 0
            for i in members:
                begin, end = end, end + math.prod(self._shapes[i])
                sums[i] = fused[begin:end].reshape(self._shapes[i])
        return sums
