"""The steps and epochs after which a checkpoint is due."""

from __future__ import annotations

import time

import numpy as np

from tarantella import collectives


class Schedule:
    """Counts steps and epochs, which are the same on all ranks, and seconds by the master's clock. Calls are collective."""

    def __init__(self, every_steps: int | None, every_seconds: float | None, every_epochs: int | None) -> None:
        self._every_steps, self._every_seconds, self._every_epochs = every_steps, every_seconds, every_epochs
        self._steps = 0  # at the last call of due_after_step
        self._last_time = self._checked_time = time.monotonic()
        self._checked_step = 0
        self._check_at = 1  # the step after which the clock is read, and the ranks agree, for the next time

    def begin_with(self, steps: int) -> None:
        """The training continues after this many steps."""
        self._steps = self._checked_step = steps
        self._check_at = steps + 1
        self._last_time = self._checked_time = time.monotonic()

    def due_after_step(self, steps: int) -> bool:
        """Whether one is due after this many steps of this fit."""
        before, self._steps = self._steps, steps
        if self._every_steps is not None and steps // self._every_steps > before // self._every_steps:
            return True
        return self._every_seconds is not None and steps >= self._check_at and self._seconds_are_over(steps)

    def due_after_epoch(self, epochs: int) -> bool:
        """Whether one is due after this many epochs of this fit."""
        return self._every_epochs is not None and epochs % self._every_epochs == 0

    def _seconds_are_over(self, steps: int) -> bool:
        """Reads the master's clock. It is read again after half of the steps that fit into the remaining time."""
        now, seconds = time.monotonic(), self._every_seconds or 0.0
        left = seconds - (now - self._last_time)
        per_step = max(now - self._checked_time, 1e-9) / max(steps - self._checked_step, 1)
        due = left <= 0
        pause = 1 if due else int(min(max(left / per_step / 2, 1), 1 << 20))
        answer = collectives.broadcast(np.array([int(due), pause], np.int64))
        self._checked_time, self._checked_step, self._check_at = now, steps, steps + int(answer[1])
        if answer[0]:
            self._last_time = now
        return bool(answer[0])
