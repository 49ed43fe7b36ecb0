"""The communicators of blocking TensorFlow ops. Their collectives run inside graphs and never mix with others."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tarantella import runtime
from tarantella.keras.reduction import ops

if TYPE_CHECKING:
    from tarantella.collectives.group import Group


def attachment(group: Group | None = None) -> int:
    """The id by which blocking ops know the communicator of a group, or of all ranks.

    Collective on the group when it is asked for the first time. Raises InvalidArgumentError if this rank is no member.
    """
    return attachment_for("graphs") if group is None or group.is_world else _group_attachment(group)


@functools.cache
def attachment_for(purpose: str) -> int:
    """As `attachment` of all ranks. Collectives of different purposes need no common order. Collective at the first call."""
    communicator = runtime.world().split(0, 0)
    if communicator is None:
        raise RuntimeError("this rank was left out of a communicator of all ranks")
    attached = ops.attach_communicator(communicator.address)

    def close() -> None:
        nonlocal communicator
        ops.detach_communicator(attached)
        communicator = None

    runtime.before_leaving(close)
    return attached


@functools.cache
def _group_attachment(group: Group) -> int:
    attached = ops.attach_communicator(group.communicator("tensors").address)
    runtime.before_leaving(lambda: ops.detach_communicator(attached))
    return attached
