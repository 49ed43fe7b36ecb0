"""The communicators of blocking TensorFlow ops. Their collectives run inside graphs and never mix with others."""

from tarantella import _native, runtime
from tarantella.collectives.group import Group
from tarantella.keras.reduction import ops

_attached: dict[str | Group, tuple[_native.Communicator, int]] = {}  # by purpose, or group: the communicator and its id


def attachment(group: Group | None = None) -> int:
    """The id by which blocking ops know the communicator of a group, or of all ranks.

    Collective on the group when it is asked for the first time. Raises InvalidArgumentError if this rank is no member.
    """
    return attachment_for("graphs") if group is None or group.is_world else _group_attachment(group)


def attachment_for(purpose: str) -> int:
    """As `attachment` of all ranks. Collectives of different purposes need no common order. Collective at the first call."""
    if purpose not in _attached:
        communicator = runtime.world().split(0, 0)
        if communicator is None:
            raise RuntimeError("this rank was left out of a communicator of all ranks")
        _attached[purpose] = communicator, ops.attach_communicator(communicator.address)
    return _attached[purpose][1]


def _group_attachment(group: Group) -> int:
    if group not in _attached:
        communicator = group.communicator("tensors")
        _attached[group] = communicator, ops.attach_communicator(communicator.address)
    return _attached[group][1]


def _detach_all() -> None:
    for _, attached in _attached.values():
        ops.detach_communicator(attached)
    _attached.clear()


runtime.before_leaving(_detach_all)
