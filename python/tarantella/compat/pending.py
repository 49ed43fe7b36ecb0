"""Collectives on a group that have been started: on all ranks the library's own, on some of them an exchange among these.

A communicator of the members could be split off, but only with all ranks of the job taking part. Members alone send to each
other directly, n - 1 messages from each: meant for numbers and small arrays, which is what groups are used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import collectives, runtime
from tarantella._native import Dtype
from tarantella.collectives import started
from tarantella.collectives.started import Started
from tarantella.collectives.wire import as_bytes
from tarantella.errors import MismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tarantella import _native
    from tarantella.compat.group import Group


_UFUNCS: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def reduce_here(parts: list[NDArray[Any]], op: str) -> NDArray[Any]:
    """The reduction of arrays of one of the library's types, in their order; of 16-bit floats in float32, rounded once."""
    dtype = parts[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    total = parts[0].astype(wide)
    for part in parts[1:]:
        _UFUNCS[op](total, part.astype(wide, copy=False), out=total)
    return total.astype(dtype, copy=False)


def all_reduce(group: Group, data: NDArray[Any], op: str) -> Started:
    """data: flat, of one of the library's types; is the operation's from now on."""
    if not group.is_world:
        works, parts = _exchange(group, data, [data.size] * group.size)
        return Started(works, lambda: reduce_here(parts, op))
    return started.all_reduce(runtime.world(), data, op)


def broadcast(group: Group, data: NDArray[Any], root: int) -> Started:
    """data: flat, of any type, the root's to be sent and the others' to be written to; root: a rank within the group."""
    world, wire, dtype = runtime.world(), as_bytes(data), Dtype.uint8
    source = group.to_global_rank(root)
    if group.is_world:
        return started.broadcast(world, data, source)
    if world.rank == source:
        works = [world.start_send(wire, dtype, to) for to in group.group if to != source]
    else:
        works = [world.start_recv(wire, dtype, source)]
    return Started(works, lambda: data)


def all_gather(group: Group, data: NDArray[Any], counts: Sequence[int]) -> Started:
    """data: flat, of any type, as many elements as counts has for this rank."""
    if not group.is_world:
        works, parts = _exchange(group, data, counts)
        return Started(works, lambda: np.concatenate(parts))
    return started.all_gather(runtime.world(), data, counts)


def barrier(group: Group) -> None:
    """Returns after all members have called it."""
    if group.is_world:
        collectives.barrier()
    else:
        nothing = np.empty(0, np.uint8)
        all_gather(group, nothing, [0] * group.size).wait()


def _exchange(group: Group, data: NDArray[Any], counts: Sequence[int]) -> tuple[list[_native.Work], list[NDArray[Any]]]:
    """Each member's array to each member."""
    world, own = runtime.world(), group.rank
    parts = [data if rank == own else np.empty(count, data.dtype) for rank, count in enumerate(counts)]
    # bytes, so that any type can travel; of how many elements is compared, and what they are has been before
    works, byte = [], Dtype.uint8
    for rank, part in enumerate(parts):
        if rank != own:
            works.append(world.start_send(as_bytes(data), byte, group.to_global_rank(rank)))
            works.append(world.start_recv(as_bytes(part), byte, group.to_global_rank(rank)))
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
