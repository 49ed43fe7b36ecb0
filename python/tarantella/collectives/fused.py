"""The sums of many arrays with one collective for each element type."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import _native, runtime
from tarantella.collectives import started
from tarantella.collectives.blocking import guardable
from tarantella.collectives.wire import wire_format


class FusedSum:
    """The elementwise sums of arrays over ranks, started. Collective.

    Args:
        comm: of the ranks that call it.
        arrays: of the same types and shapes on all ranks; may change from now on.

    Raises:
        TypeError: an array does not hold numbers or booleans.
    """

    def __init__(self, comm: _native.Communicator, arrays: Sequence[NDArray[Any]]) -> None:
        self._shapes = [array.shape for array in arrays]
        self._parts = []
        formats = {dtype: wire_format(dtype, "sum") for dtype in dict.fromkeys(array.dtype for array in arrays)}
        for dtype, wire in formats.items():
            members = [i for i, array in enumerate(arrays) if array.dtype == dtype]
            fused = np.concatenate([arrays[i].reshape(-1) for i in members])
            self._parts.append((members, wire, started.all_reduce(comm, wire.encode(fused), wire.op)))

    def wait(self) -> list[NDArray[Any]]:
        """The sums, as new arrays of the same types and shapes."""
        sums: list[Any] = [None] * len(self._shapes)
        for members, wire, work in self._parts:
            fused, end = wire.decode(work.wait()), 0
            for i in members:
                begin, end = end, end + math.prod(self._shapes[i])
                sums[i] = fused[begin:end].reshape(self._shapes[i])
        return sums


@guardable
def all_reduce_each(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The sum over all ranks of each array, with one collective for each element type. Collective."""
    return FusedSum(runtime.world(), arrays).wait()
