"""A communicator that our TensorFlow ops use: its collectives run inside graphs, apart from all others."""

from __future__ import annotations

import weakref

from tarantella import _native, runtime
from tarantella.keras.reduction import ops

_live: weakref.WeakSet[OpCommunicator] = weakref.WeakSet()


class OpCommunicator:
    """All ranks, for the ops that block until a collective is done. Making one is collective."""

    def __init__(self) -> None:
        self._native: _native.Communicator | None = None
        part = runtime.world().split(0, 0)
        if part is None:
            raise RuntimeError("this rank was left out of a communicator of all ranks")
        self._native = part
        self.attachment = ops.attach_communicator(part.address)
        _live.add(self)

    def close(self) -> None:
        """Gives the communicator back; a graph that still uses it fails with a sentence."""
        if self._native is not None:
            _live.discard(self)
            ops.detach_communicator(self.attachment)
            self._native = None

    def __del__(self) -> None:
        self.close()


def _close_all() -> None:
    for communicator in list(_live):
        communicator.close()


runtime.before_leaving(_close_all)
