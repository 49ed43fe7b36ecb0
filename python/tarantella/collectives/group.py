"""Some of the job's ranks, in an order of their own."""

import hashlib
import operator
from collections.abc import Iterable

from tarantella import _native, runtime
from tarantella.errors import InvalidArgumentError

_communicators: dict[tuple[str, tuple[int, ...]], _native.Communicator] = {}
runtime.before_leaving(_communicators.clear)


class Group:
    """A group of ranks: all of the job, or the given ones.

    Making one is local and costs nothing; any rank may make any group. The collectives on a group are called by its members
    and by nobody else; the first one connects them.

    Args:
        ranks: global ranks, each once, in the order of their ranks within the group; None for all.

    Raises:
        InvalidArgumentError: no rank at all, one that the job does not have, or one twice.

    Examples:
        >>> even = tnt.Group(range(0, tnt.get_size(), 2))
        >>> if even.contains_global_rank(tnt.get_rank()):
        ...     total = tnt.TensorAllreducer(loss, group=even).allreduce(loss)
    """

    def __init__(self, ranks: Iterable[int] | None = None) -> None:
        size = runtime.get_size()
        self._ranks = tuple(range(size) if ranks is None else map(operator.index, ranks))
        wrong = [rank for rank in self._ranks if not 0 <= rank < size]
        if wrong:
            raise InvalidArgumentError(f"{self}: the job has ranks 0 to {size - 1}, and no {wrong[0]!r}")
        if not self._ranks or len(set(self._ranks)) < len(self._ranks):
            raise InvalidArgumentError(f"{self}: name each rank of the group once")

    @property
    def group(self) -> list[int]:
        """The global ranks of its members."""
        return list(self._ranks)

    @property
    def size(self) -> int:
        """How many members it has."""
        return len(self._ranks)

    @property
    def rank(self) -> int:
        """This process among the members, from 0. Raises InvalidArgumentError if it is none."""
        return self.to_group_rank(runtime.get_rank())

    @property
    def global_rank(self) -> int:
        """This process among all ranks of the job."""
        return runtime.get_rank()

    @property
    def is_world(self) -> bool:
        """Whether the members are all ranks of the job, in their order."""
        return self._ranks == tuple(range(runtime.get_size()))

    def communicator(self, purpose: str = "") -> _native.Communicator:
        """The members' communicator. The first call makes it and is collective on the group. Raises InvalidArgumentError if
        this process is no member.

        Args:
            purpose: collectives of different purposes have communicators of their own, so that they need no common order.
        """
        self.to_group_rank(runtime.get_rank())
        if self.is_world and not purpose:
            return runtime.world()
        key = (purpose, self._ranks)
        if key not in _communicators:
            tag = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:3], "little")
            _communicators[key] = runtime.world().create_group(list(self._ranks), tag)
        return _communicators[key]

    def contains_rank(self, rank: int) -> bool:
        """Whether a member has this rank within the group."""
        return 0 <= rank < self.size

    def contains_global_rank(self, rank: int) -> bool:
        """Whether this rank of the job is a member."""
        return rank in self._ranks

    def to_global_rank(self, rank: int) -> int:
        """The rank in the job of the member with this rank. Raises InvalidArgumentError if there is none."""
        if not self.contains_rank(rank):
            raise InvalidArgumentError(f"{self} has ranks 0 to {self.size - 1}, and no {rank!r}")
        return self._ranks[rank]

    def to_group_rank(self, rank: int) -> int:
        """The rank within the group of this rank of the job. Raises InvalidArgumentError if it is no member."""
        if not self.contains_global_rank(rank):
            raise InvalidArgumentError(f"rank {rank} is not in {self}: only its members take part in what is done on it")
        return self._ranks.index(rank)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Group) and self._ranks == other._ranks

    def __hash__(self) -> int:
        return hash(self._ranks)

    def __repr__(self) -> str:
        return f"Group({list(self._ranks)})"


def get_group_master_rank(group: Group) -> int:
    """The member that speaks for the group, as a rank of the job: the group's rank 0."""
    return group.to_global_rank(0)


def is_group_master_rank(group: Group) -> bool:
    """Whether this process is the one that speaks for the group."""
    return runtime.get_rank() == get_group_master_rank(group)
