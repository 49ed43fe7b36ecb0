"""The operations of a `fit` in which ranks communicate: each is done by all ranks, or made again by those that are left.

All ranks do the same operations in the same order, and count them. When a rank is lost, some of the others may have finished an
operation that failed on the rest, but no more than one. After the ranks have joined the next generation of the job, those that
have not finished it take its outcome from one that has. If none has, all make it again.
"""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tarantella import collectives, generations, runtime


class State(Protocol):
    """What operations change."""

    def renew(self) -> None:
        """Drops what belonged to the last generation. On this rank."""

    def share(self, source: int | None) -> None:
        """Brings the ranks of the new generation together. Collective. source: a rank that is one operation ahead of others."""


class Operations:
    """Those of one `fit` on this rank."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._done = 0
        self._outcome: Any = None  # of the last one, as `collectives.broadcast_object` takes it
        self._is_inside = False  # of an operation, or of the recovery from a loss

    def run(
        self, operation: Callable[[], Any], again: Callable[[], Any] | None = None, undo: Callable[[], None] | None = None
    ) -> Any:
        """The result of an operation. Collective.

        Args:
            operation: returns numbers and arrays, in lists and dicts.
            again: does it if it has failed before; None: the operation itself does.
            undo: gives up what it has changed before it failed; None: it has changed nothing.

        Raises:
            What the operation raises; the error of a lost rank if the job has no next generation.
        """
        if self._is_inside:
            return operation()
        self._is_inside = True
        try:
            result = self._run(operation, again or operation, undo or _nothing)
        finally:
            self._is_inside = False
        self._done += 1
        self._outcome = result
        return result

    def _run(self, operation: Callable[[], Any], again: Callable[[], Any], undo: Callable[[], None]) -> Any:
        while True:
            try:
                return operation()
            except Exception as error:
                if not generations.is_loss(error):
                    raise
                undo()
                is_finished = self._recover(error)
            if is_finished:
                return self._outcome
            operation = again

    def _recover(self, error: Exception) -> bool:
        """Joins the next generation. Returns whether another rank had finished the operation; its outcome is ours then."""
        while True:
            if not generations.join_next():
                raise error
            self._state.renew()
            try:
                return self._agree()
            except Exception as another:
                if not generations.is_loss(another):
                    raise

    def _agree(self) -> bool:
        done = collectives.all_gather(np.array(self._done))
        is_ahead = done == done.max()
        source = None if is_ahead.all() else int(np.argmax(is_ahead))
        self._state.share(source)
        runtime.logger.warning("the training goes on; ranks by now: %d", runtime.get_size())
        if source is None:
            return False
        outcome = collectives.broadcast_object(self._outcome, source)
        if is_ahead[runtime.get_rank()]:
            return False
        self._outcome = outcome
        return True


def _nothing() -> None:
    """What there is to undo of an operation that has changed nothing."""
