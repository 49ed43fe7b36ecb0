"""Collectives on flat arrays of a fixed number of elements, started in one call and finished in another."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tarantella import generations, reduction
from tarantella.collectives import started
from tarantella.collectives.arrays import as_array
from tarantella.collectives.group import Group
from tarantella.collectives.started import Started, all_gather
from tarantella.collectives.wire import wire_format
from tarantella.errors import InvalidArgumentError, MismatchError


class ReductionOp(enum.Enum):
    """The operation of an `Allreduce` on all ranks' elements.

    AND and OR ask of each element whether it is zero, and give 0 or 1 in its type. Of booleans SUM is OR and PROD is AND, as in
    NumPy.
    """

    SUM = "sum"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"


class Barrier:
    """Lets the members of a group wait for each other.

    Examples:
        >>> tnt.Barrier().execute()
    """

    def __init__(self, group: Group | None = None) -> None:
        self._group = group or Group()

    def execute(self) -> None:
        """Returns after all members have called it. Collective on the group."""
        self._group.communicator().barrier()

    synchronize = execute


class Collective:
    """The base of the collectives here. Making one is collective on its group.

    Other work, also other collectives, may come between `start` and `wait_for_completion`. Ranks start collectives in the
    same order. A collective that is not waited for completes by itself.
    """

    def __init__(self, group: Group, nelems: int, dtype: Any, lines: Callable[[], list[str]]) -> None:
        """lines: gives the text that has to be the same on all members, or raises."""
        self._group = group
        self._rank = group.rank  # or an error
        self._pending: Started | None = None
        failure: Exception | None = None
        own = []
        try:
            self._dtype: np.dtype[Any] = np.dtype(np.float64 if dtype is None else dtype)
            self._count = int(nelems)
            if self._count < 0:
                raise InvalidArgumentError(f"nelems is {nelems}: use 0 or more")
            if self._dtype.hasobject:
                raise TypeError("cannot send Python objects: use a type of numbers")
            own = [f"elements of type {self._dtype.name}", *lines()]
        except (TypeError, ValueError, KeyError) as error:
            failure = error
        require_same_lines(group, type(self).__name__, own, failure)

    def wait_for_completion(self) -> NDArray[Any]:
        """The result of what was started: a new one-dimensional array.

        Raises:
            InvalidArgumentError: nothing was started. MismatchError, PeerLostError, DeadlineError: the ranks did not meet.
        """
        if self._pending is None:
            raise InvalidArgumentError(f"{type(self).__name__}: nothing was started: call start first")
        started, self._pending = self._pending, None
        return started.wait()

    def is_complete(self) -> bool:
        """Whether `wait_for_completion` would return at once."""
        return self._pending is None or self._pending.test()

    def _data(self, data: ArrayLike | Any) -> NDArray[Any]:
        """A flat copy of the data to send, so that the caller may change its own."""
        if self._pending is not None:
            raise InvalidArgumentError(f"{type(self).__name__} was started already: call wait_for_completion first")
        array = as_array(data)
        if array.size != self._count:
            raise InvalidArgumentError(f"{type(self).__name__} is for {self._count} elements: it was given {array.size}")
        return array.reshape(-1).astype(self._dtype, casting="same_kind")


class Allreduce(Collective):
    """The elementwise reduction of arrays over the ranks of a group.

    Args:
        group: whose members call it.
        nelems: the number of elements, the same on all ranks.
        op: a `tnt.ReductionOp`. Sums are taken in a fixed tree over ranks: the same bits always.
        algorithm: accepted for scripts that name one; the library chooses.
        dtype: of the elements, float64 if None; anything that NumPy takes: floats of 16 to 64 bits, bfloat16, integers,
            booleans, complex numbers (SUM).

    Raises:
        InvalidArgumentError: this rank is not in the group, or nelems is negative. TypeError: there is no such reduction.
        MismatchError: ranks made different ones.

    Examples:
        >>> largest = tnt.Allreduce(tnt.Group(), 2, tnt.ReductionOp.MAX)
        >>> largest.start([tnt.get_rank(), -tnt.get_rank()])
        >>> largest.wait_for_completion()   # on 3 ranks
        array([2., 0.])
    """

    def __init__(
        self, group: Group, nelems: int, op: ReductionOp = ReductionOp.SUM, algorithm: Any = None, dtype: Any = None
    ) -> None:
        def lines() -> list[str]:
            self._wire = wire_format(self._dtype, ReductionOp(op).value)
            return [f"{self._count} elements", f"operation {ReductionOp(op).name}"]

        super().__init__(group, nelems, dtype, lines)

    def start(self, data: ArrayLike | Any) -> None:
        """Starts with this rank's array of nelems elements, and returns at once."""
        wire = self._wire.encode(self._data(data))
        reduction.note_elements(self._count)
        reduced = started.all_reduce(self._group.communicator(), wire, self._wire.op)
        self._pending = Started(reduced.work, lambda: self._wire.decode(reduced.result()))


class Broadcast(Collective):
    """One rank's array, on all ranks of a group.

    Args:
        group: whose members call it.
        nelems: the number of elements, the same on all ranks.
        root: whose array it is: a rank within the group.
        algorithm: accepted for scripts that name one; the library chooses.
        dtype: of the elements, float64 if None; anything of fixed size that NumPy takes.

    Raises:
        InvalidArgumentError: this rank is not in the group, or root is not; nelems is negative. MismatchError: ranks made
        different ones.
    """

    def __init__(self, group: Group, nelems: int, root: int = 0, algorithm: Any = None, dtype: Any = None) -> None:
        def lines() -> list[str]:
            group.to_global_rank(root)
            return [f"{self._count} elements", f"root {root}"]

        self._root = root
        super().__init__(group, nelems, dtype, lines)

    def start(self, data: ArrayLike | Any = None) -> None:
        """Starts, and returns at once. The root gives the array of nelems elements; what others give does not matter."""
        if self._rank == self._root and data is None:
            raise InvalidArgumentError("Broadcast: the root has to give the data to start with")
        own = self._data(np.empty(self._count, self._dtype) if self._rank != self._root else data)
        self._pending = started.broadcast(self._group.communicator(), own, self._root)


class Allgatherv(Collective):
    """The arrays of all ranks of a group one after another, on all of them; each may have another number of elements.

    Args:
        group: whose members call it.
        nelems: the number of elements of this rank's array.
        algorithm: accepted for scripts that name one; the library chooses.
        dtype: of the elements, float64 if None; anything of fixed size that NumPy takes.

    Raises:
        InvalidArgumentError: this rank is not in the group, or nelems is negative. MismatchError: ranks made different ones.
    """

    def __init__(self, group: Group, nelems: int, algorithm: Any = None, dtype: Any = None) -> None:
        super().__init__(group, nelems, dtype, list)
        own = np.array([self._count], np.int64)
        self._counts = started.all_gather(group.communicator(), own, [1] * group.size).wait().tolist()

    def start(self, data: ArrayLike | Any) -> None:
        """Starts with this rank's array of nelems elements, and returns at once."""
        self._pending = started.all_gather(self._group.communicator(), self._data(data), self._counts)


def gather_texts(group: Group, text: str) -> list[str]:
    """Every member's text. Collective on the group."""
    comm, own = group.communicator(), np.frombuffer(text.encode(), np.uint8)
    counts = all_gather(comm, np.array([own.size], np.int64), [1] * group.size).wait()
    together = all_gather(comm, own, counts.tolist()).wait()
    return [part.tobytes().decode() for part in np.split(together, np.cumsum(counts)[:-1])]


def require_same_lines(group: Group, what: str, lines: Sequence[str], failure: Exception | None = None) -> None:
    """Raises on all members if their lines differ. Collective on the group.

    Args:
        what: is being made, for the error.
        lines: the text that has to be the same.
        failure: what kept this rank from knowing its lines.

    Raises:
        The failure itself on its rank; else MismatchError, with the first line that differs.
    """
    generations.refuse_newcomer(what)
    own = [f"an error, {failure}"] if failure else list(lines)
    texts = gather_texts(group, "\n".join(own))
    if failure:
        raise failure
    first = texts[0].split("\n")
    for rank, text in enumerate(texts[1:], 1):
        other = text.split("\n")
        if other != first:
            pairs = enumerate(zip(first, other, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(first), len(other)))
            shown = [some[at] if at < len(some) else "nothing more" for some in (other, first)]
            raise MismatchError(
                f"{what}: rank {group.to_global_rank(rank)} has {shown[0]}; rank {group.to_global_rank(0)} has {shown[1]}. "
                "Give it the same on all ranks"
            )
