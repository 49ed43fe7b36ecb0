"""Collectives on a group that have been started: on all ranks the library's own, on some of them an exchange among these.

A communicator of the members could be split off, but only with all ranks of the job taking part. Members alone send to each
other directly, n - 1 messages from each: meant for numbers and small arrays, which is what groups are used for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import runtime
from tarantella.collectives.reduction import reduce_here
from tarantella.errors import MismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tarantella import _native
    from tarantella.collectives.group import Group


@dataclass(frozen=True)
class Pending:
    """Something that was started."""

    works: Sequence[_native.Work]
    result: Callable[[], NDArray[Any]]

    def test(self) -> bool:
        """Whether waiting would return at once."""
        return all(work.test() for work in self.works)

    def wait(self) -> NDArray[Any]:
        """The result, when it is there."""
        for work in self.works:
            work.wait()
        return self.result()


def all_reduce(group: Group, data: NDArray[Any], op: str) -> Pending:
    """data: flat, of one of the library's types; is the operation's from now on."""
    if not group.is_world:
        works, parts = _exchange(group, data, [data.size] * group.size)
        return Pending(works, lambda: reduce_here(parts, op))
    wire, dtype = runtime._wire(data)
    return Pending([runtime.world().start_all_reduce(wire, wire, dtype, runtime._OPS[op])], lambda: data)


def broadcast(group: Group, data: NDArray[Any], root: int) -> Pending:
    """data: flat, of any type, the root's to be sent and the others' to be written to; root: a rank within the group."""
    world, wire, dtype = runtime.world(), runtime._bytes_of(data), runtime._DTYPES["uint8"]
    source = group.to_global_rank(root)
    if group.is_world:
        works = [world.start_broadcast(wire, dtype, source)]
    elif world.rank == source:
        works = [world.start_send(wire, dtype, to) for to in group.group if to != source]
    else:
        works = [world.start_recv(wire, dtype, source)]
    return Pending(works, lambda: data)


def all_gather(group: Group, data: NDArray[Any], counts: Sequence[int]) -> Pending:
    """data: flat, of any type, as many elements as counts has for this rank."""
    if not group.is_world:
        works, parts = _exchange(group, data, counts)
        return Pending(works, lambda: np.concatenate(parts))
    longest = max(counts)
    own = data if data.size == longest else np.concatenate([data, np.zeros(longest - data.size, data.dtype)])
    rows = np.empty((group.size, longest), data.dtype)
    work = runtime.world().start_all_gather(runtime._bytes_of(own), runtime._bytes_of(rows), runtime._DTYPES["uint8"])
    if min(counts) == longest:
        return Pending([work], lambda: rows.reshape(-1))
    return Pending([work], lambda: np.concatenate([row[:count] for row, count in zip(rows, counts, strict=True)]))


def barrier(group: Group) -> None:
    """Returns after all members have called it."""
    if group.is_world:
        runtime.barrier()
    else:
        nothing = np.empty(0, np.uint8)
        all_gather(group, nothing, [0] * group.size).wait()


def _exchange(group: Group, data: NDArray[Any], counts: Sequence[int]) -> tuple[list[_native.Work], list[NDArray[Any]]]:
    """Each member's array to each member."""
    world, own = runtime.world(), group.rank
    parts = [data if rank == own else np.empty(count, data.dtype) for rank, count in enumerate(counts)]
    # bytes, so that any type can travel; of how many elements is compared, and what they are has been before
    works, byte = [], runtime._DTYPES["uint8"]
    for rank, part in enumerate(parts):
        if rank != own:
            works.append(world.start_send(runtime._bytes_of(data), byte, group.to_global_rank(rank)))
            works.append(world.start_recv(runtime._bytes_of(part), byte, group.to_global_rank(rank)))
    return works, parts


def gather_texts(group: Group, text: str) -> list[str]:
    """Every member's text. Collective on the group."""
    own = np.frombuffer(text.encode(), np.uint8)
    counts = all_gather(group, np.array([own.size], np.int64), [1] * group.size).wait()
    ends = np.cumsum(counts)
    together = all_gather(group, own, counts.tolist()).wait()
    return [part.tobytes().decode() for part in np.split(together, ends[:-1])]


def agree(group: Group, what: str, lines: Sequence[str], failure: Exception | None = None) -> None:
    """Raises on all members alike if their lines differ. Collective on the group.

    Args:
        what: is being made, for the error.
        lines: what has to be the same.
        failure: what kept this rank from knowing its lines.

    Raises:
        The failure itself on the rank that met it; else MismatchError, with the first line that differs.
    """
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
            theirs, ours = ((some[at] if at < len(some) else "nothing more") for some in (other, first))
            raise MismatchError(
                f"{what}: rank {group.to_global_rank(rank)} has {theirs}; rank {group.to_global_rank(0)} has {ours}. Give it "
                "the same on all ranks"
            )
