"""The operations of `fit` in which ranks communicate: each is done by all ranks, or made again by those that are left.

All ranks do the same operations in the same order, and count them. When a rank is lost, some of the others may have finished an
operation that failed on the rest, but no more than one. After the ranks have joined the next generation of the job, those that
have not finished it take its outcome from one that has. If none has, all make it again. A newcomer joins before a step that no
rank has finished, as one that has finished no operation.

The operations of all calls of `fit` are counted together, and divided into stages. Where one stage follows another, ranks have
the same state, so a rank that is behind another one by an operation, and by a stage, needs its outcome alone. A stage may be
inside of another one, as where a callback of `fit` trains another model. The outer one has a new generation all the same.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from tarantella import collectives, generations, runtime
from tarantella.errors import AbortedError, UnsupportedError
from tarantella.generations import Position

NONE = -1
"""The operations that a newcomer has finished."""


class State(Protocol):
    """What the operations of a stage change."""

    def finish(self, changes: bool) -> None:
        """An operation has ended on this rank. changes: whether it is one that changes the state."""

    def renew(self) -> None:
        """Drops what belonged to the last generation. On this rank."""

    def share(self, source: int | None, done: Sequence[int], changes: bool) -> None:
        """Brings the ranks of the new generation together. Collective.

        Args:
            source: a rank that is ahead of others, by one operation or, of newcomers, by all; None: there are no others.
            done: how many operations each rank has finished; `NONE` of newcomers.
            changes: whether the operation by which ranks are behind changes the state. Otherwise they lack its outcome alone.
        """

    def settle(self) -> None:
        """Takes this rank's place in the new generation, which may be the master's. Not collective."""


class NoState:
    """The state of operations that give no rank anything that others need, but for their outcomes."""

    def finish(self, changes: bool) -> None:
        """As of `State`."""

    def renew(self) -> None:
        """As of `State`."""

    def share(self, source: int | None, done: Sequence[int], changes: bool) -> None:
        """As of `State`."""

    def settle(self) -> None:
        """As of `State`."""


class Operations:
    """Those of this rank."""

    def __init__(self) -> None:
        self._states: list[State] = []  # of the stages in which this rank is, from the outermost
        self._stages = 0  # that have begun, or ended
        self._done = 0
        self._outcome: Any = None  # of the last one, as `collectives.broadcast_object` takes it
        self._is_inside = False  # of an operation, or of the recovery from a loss
        self._changes = False  # whether the operation changes the state of the stage

    @property
    def has_stage(self) -> bool:
        """Whether operations change the state of a stage now."""
        return bool(self._states)

    @contextmanager
    def stage(self, state: State) -> Iterator[None]:
        """In this context operations change this state."""
        self._states.append(state)
        self._stages += 1
        try:
            yield
        finally:
            self._states.pop()
            self._stages += 1

    def run(
        self,
        operation: Callable[[], Any],
        again: Callable[[], Any] | None = None,
        undo: Callable[[], None] | None = None,
        meeting: Position | None = None,
        changes: bool = False,
    ) -> Any:
        """The result of an operation. Collective.

        Args:
            operation: returns numbers and arrays, in lists and dicts.
            again: does it if it has failed before; None: the operation itself does.
            undo: gives up what it has changed before it failed; None: it has changed nothing.
            meeting: the position if newcomers may join before it; `operation` then makes all ranks leave the job.
            changes: whether the operation itself changes the state of the stage, as a step does. Changes that the caller makes
                with its result do not count.

        Raises:
            What the operation raises; the error of a lost rank if the job has no next generation.
        """
        if self._is_inside:
            return operation()
        self._is_inside, self._changes = True, changes
        try:
            result = self._run(operation, again or operation, undo or _nothing, meeting)
        finally:
            self._is_inside = False
        self._done += 1
        self._outcome = result
        if self._states:
            self._states[-1].finish(changes)
        return result

    def join(self) -> bool:
        """Joins the others, as a newcomer. Collective. Returns whether it has: False if they have gone on without it."""
        self._done, self._is_inside = NONE, True
        try:
            while True:
                has_joined = generations.join_next()
                if has_joined is None:
                    return False
                if not has_joined:
                    raise AbortedError("the job ended before this rank could join it")
                if self._agree_in_new_generation() is not None:
                    return True
        finally:
            self._is_inside = False

    def _run(
        self, operation: Callable[[], Any], again: Callable[[], Any], undo: Callable[[], None], meeting: Position | None
    ) -> Any:
        while True:
            try:
                if generations.takes_part_late() and self._agree():
                    return self._outcome
                return operation()
            except Exception as error:
                if not generations.is_loss(error):
                    raise
                undo()
                is_finished = self._recover(error, meeting)
            if is_finished:
                return self._outcome
            operation = again

    def _recover(self, error: Exception, meeting: Position | None) -> bool:
        """Joins the next generation. Returns whether another rank had finished the operation; its outcome is ours then."""
        while True:
            if not generations.join_next(meeting):
                raise error
            is_finished = self._agree_in_new_generation()
            if is_finished is not None:
                return is_finished

    def _agree_in_new_generation(self) -> bool | None:
        """Whether another rank was ahead, whose outcome is ours; None: one more was lost meanwhile."""
        for state in self._states:
            state.renew()
        try:
            return self._agree()
        except Exception as error:
            if not generations.is_loss(error):
                raise
            return None

    def _agree(self) -> bool:
        own = [self._done, self._stages, len(self._states), self._changes]
        done, stages, depths, changing = collectives.all_gather(np.array(own, np.int64)).T
        if done.max() == NONE:
            raise UnsupportedError("all ranks were lost that had the state of the training")
        is_ahead, is_old = done == done.max(), done != NONE
        source = None if is_ahead.all() else int(np.argmax(is_ahead))
        changes = bool(changing[is_old & ~is_ahead].any())
        *outer, inner = self._states[: depths[is_old].min()]
        for state in outer:
            state.share(None, done.tolist(), changes)
        inner.share(source if len(set(stages[is_old])) == 1 else None, done.tolist(), changes)
        for state in self._states:
            state.settle()
        runtime.logger.warning("the training goes on; ranks by now: %d", runtime.get_size())
        if source is None:
            return False
        outcome = collectives.broadcast_object(self._outcome, source)
        if is_ahead[runtime.get_rank()]:
            return False
        self._outcome = outcome
        if self._done == NONE:
            self._done = int(done.max())
        return True


def _nothing() -> None:
    """What there is to undo of an operation that has changed nothing."""


operations = Operations()
"""Those of this job."""
