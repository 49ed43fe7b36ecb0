"""Collectives on flat NumPy arrays that are started now and finished later."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import _native
from tarantella._native import Dtype
from tarantella.collectives.wire import as_bytes, as_library_type, operation


@dataclass(frozen=True)
class Started:
    """A collective that may still run. Ranks start those on one communicator in the same order."""

    work: _native.Work
    result: Callable[[], NDArray[Any]]

    def test(self) -> bool:
        """Whether waiting would return at once."""
        return self.work.test()

    def wait(self) -> NDArray[Any]:
        """The result, when it is there."""
        self.work.wait()
        return self.result()


def all_reduce(comm: _native.Communicator, data: NDArray[Any], op: str) -> Started:
    """data: of one of the library's types; the operation's from now on, and its result."""
    wire, dtype = as_library_type(data)
    return Started(comm.start_all_reduce(wire, wire, dtype, operation(op)), lambda: data)


def broadcast(comm: _native.Communicator, data: NDArray[Any], root: int) -> Started:
    """data: of any type of fixed size; read on the root, written on the others."""
    return Started(comm.start_broadcast(as_bytes(data), Dtype.uint8, root), lambda: data)


def all_gather(comm: _native.Communicator, data: NDArray[Any], counts: Sequence[int]) -> Started:
    """data: of any type of fixed size, with as many elements as counts has for this rank. The result is all ranks' elements."""
    longest = max(counts)
    own = data if data.size == longest else np.concatenate([data, np.zeros(longest - data.size, data.dtype)])
    rows = np.empty((len(counts), longest), data.dtype)
    work = comm.start_all_gather(as_bytes(own), as_bytes(rows), Dtype.uint8)
    if min(counts) == longest:
        return Started(work, lambda: rows.reshape(-1))
    return Started(work, lambda: np.concatenate([row[:count] for row, count in zip(rows, counts, strict=True)]))
