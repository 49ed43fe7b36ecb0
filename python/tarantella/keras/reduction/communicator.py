"""The communicator of blocking TensorFlow ops. Their collectives run inside graphs and never mix with others."""

from __future__ import annotations

import functools

from tarantella import runtime
from tarantella.keras.reduction import ops


@functools.cache
def attachment() -> int:
    """The id by which blocking ops know the communicator, of all ranks. Collective when it is asked for the first time."""
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
