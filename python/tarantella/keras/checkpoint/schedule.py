"""The steps and epochs after which a checkpoint is due, and the one after which ranks that got a SIGTERM save and end."""

import time
from collections.abc import Callable

import numpy as np

from tarantella import collectives, runtime

LOOK_EVERY = 1.0
"""Seconds after which ranks ask each other, after a step, whether one is to end. It costs a reduction of three numbers."""


class Schedule:
    """Counts steps and epochs, which are the same on all ranks, and seconds by the master's clock. Calls are collective.

    Args:
        ends: whether this rank is to end; None: no rank ever is.
    """

    def __init__(
        self,
        every_steps: int | None,
        every_seconds: float | None,
        every_epochs: int | None,
        ends: Callable[[], bool] | None = None,
    ) -> None:
        self._every_steps, self._every_seconds, self._every_epochs = every_steps, every_seconds, every_epochs
        self._ends = ends
        self.is_over = False
        """Whether any rank is to end, so that all do: they save now. Known by all ranks at the same step."""
        self._steps = 0  # at the last call of due_after_step
        self._last_time = self._checked_time = time.monotonic()
        self._checked_step = 0
        self._check_at = 1  # the step after which the clock is read, and the ranks agree, for the next time

    def begin_with(self, steps: int) -> None:
        """The training continues after this many steps."""
        self._steps = self._checked_step = steps
        self._check_at = steps + 1
        self._last_time = self._checked_time = time.monotonic()

    def progress(self) -> list[int]:
        """What is the same on all ranks."""
        return [self._steps, self._checked_step, self._check_at]

    def join(self, progress: list[int]) -> None:
        """Goes on with that of another rank."""
        self._steps, self._checked_step, self._check_at = progress

    def due_after_step(self, steps: int) -> bool:
        """Whether one is due after this many steps of this fit."""
        before, self._steps = self._steps, steps
        seconds_are_over = self._look(steps) if steps >= self._check_at else False
        every = self._every_steps
        return seconds_are_over or (every is not None and steps // every > before // every)

    def due_after_epoch(self, epochs: int) -> bool:
        """Whether one is due after this many epochs of this fit."""
        self._look(self._steps)
        return self._every_epochs is not None and epochs % self._every_epochs == 0

    def _look(self, steps: int) -> bool:
        """Reads the master's clock, and asks all ranks whether one is to end. Returns whether the seconds are over.

        It is done again after half of the steps that fit into the remaining time, or into LOOK_EVERY.
        """
        if self._every_seconds is None and self._ends is None:
            return False
        now = time.monotonic()
        left = float("inf") if self._every_seconds is None else self._every_seconds - (now - self._last_time)
        wait = left / 2 if self._ends is None else min(left / 2, LOOK_EVERY)
        per_step = max(now - self._checked_time, 1e-9) / max(steps - self._checked_step, 1)
        due = left <= 0
        pause = 1 if due else int(min(max(wait / per_step, 1), 1 << 20))
        own = [0, 0] if not runtime.is_master_rank() else [int(due), pause]
        answer = collectives.all_reduce(np.array([*own, self._ends is not None and self._ends()], np.int64), "max")
        self._checked_time, self._checked_step, self._check_at = now, steps, steps + int(answer[1])
        self.is_over = bool(answer[2])
        if answer[0]:
            self._last_time = now
        return bool(answer[0])
