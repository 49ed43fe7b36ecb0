"""Groups of ranks."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from tarantella import runtime
from tarantella.collectives.group import Group
from tarantella.errors import UnsupportedError


class ProcessSet:
    """Some ranks of the job.

    Args:
        ranks_or_comm: the ranks.

    Attributes:
        process_set_id: None before it is added and after it was removed.
        ranks: in ascending order.
    """

    process_set_id: int | None = None

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        if not isinstance(ranks_or_comm, Iterable):
            raise UnsupportedError(f"hvd.ProcessSet({ranks_or_comm!r}): name the ranks; an MPI communicator is not read")
        self.ranks: list[int] | None = sorted(map(int, ranks_or_comm))
        self.mpi_comm = None

    def size(self) -> int | None:
        """How many ranks it has; None if it is not registered."""
        return None if self.process_set_id is None else self.group().size

    def rank(self) -> int | None:
        """This process among them; None if the process set is not registered. Raises ValueError if it is none of them."""
        return None if self.process_set_id is None else self.group().rank

    def included(self) -> bool | None:
        """Whether this process is one of them; None if the process set is not registered."""
        return None if self.process_set_id is None else self.group().contains_global_rank(runtime.get_rank())

    def group(self) -> Group:
        """The same as a `tnt.Group`. Raises ValueError if the process set was not added, or is removed."""
        if self.process_set_id is None:
            raise ValueError(f"{self} is not registered: give it to hvd.add_process_set or hvd.init on all ranks")
        return Group(self.ranks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and (self.ranks, self.process_set_id) == (other.ranks, other.process_set_id)

    def __hash__(self) -> int:
        return hash((tuple(self.ranks or ()), self.process_set_id))

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


class _AllRanks(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        self.mpi_comm = None

    @property
    def ranks(self) -> list[int]:  # type: ignore[override]
        return list(range(runtime.get_size()))

    def group(self) -> Group:
        return Group()


global_process_set: ProcessSet = _AllRanks()
_sets_by_id: dict[int, ProcessSet] = {}
_ids = itertools.count(1)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Makes collectives on these ranks possible. All ranks call it, in the same order.

    Raises:
        ValueError: there is such a process set already. InvalidArgumentError: the job has no such rank.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    Group(added.ranks)  # or an error
    if added is global_process_set or any(added.ranks == other.ranks for other in (global_process_set, *_sets_by_id.values())):
        raise ValueError(f"a process set of the ranks {added.ranks} exists already")
    added.process_set_id = next(_ids)
    _sets_by_id[added.process_set_id] = added
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Ends a process set; False if it was not registered, or has all ranks. All ranks call it, in the same order."""
    if process_set.process_set_id is None or _sets_by_id.pop(process_set.process_set_id, None) is None:
        return False
    process_set.process_set_id = None
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of each process set, by its id."""
    return {0: list(range(runtime.get_size())), **{number: list(each.ranks or ()) for number, each in _sets_by_id.items()}}


def by_id(number: int) -> ProcessSet:
    """The process set with this id. Raises ValueError if there is none."""
    found: Any = global_process_set if number == 0 else _sets_by_id.get(number)
    if found is None:
        raise ValueError(f"there is no process set with the id {number}")
    return found  # type: ignore[no-any-return]


def forget() -> None:
    """Removes all of them."""
    for process_set in list(_sets_by_id.values()):
        remove_process_set(process_set)
