"""When a checkpoint is due."""

from __future__ import annotations

import time

import numpy as np

from tarantella import collectives


class Schedule:
    """By steps and epochs, which all ranks count alike; by seconds as the master's clock says. Calls are collective."""

    def __init__(self, every_steps: int | None, every_seconds: float | None, every_epochs: int | None) -> None:
        self._every_steps, self._every_seconds, self._every_epochs = every_steps, every_seconds, every_epochs
        self._steps = 0  # when it was last asked
        self._last_time = self._asked_time = time.monotonic()
        self._asked_step = 0
        self._ask_at = 1  # the clock is looked at, and ranks agree, after this many steps only

    def begin_with(self, steps: int) -> None:
        """So many steps were made before."""
        self._steps = self._asked_step = steps
        self._ask_at = steps + 1
        self._last_time = self._asked_time = time.monotonic()

    def due_after_step(self, steps: int) -> bool:
        """Whether one is due when so many steps are done, of this fit."""
        before, self._steps = self._steps, steps
        if self._every_steps is not None and steps // self._every_steps > before // self._every_steps:
            return True
        return self._every_seconds is not None and steps >= self._ask_at and self._seconds_are_over(steps)

    def due_after_epoch(self, epochs: int) -> bool:
        """Whether one is due when so many epochs are done, of this fit."""
        return self._every_epochs is not None and epochs % self._every_epochs == 0

    def _seconds_are_over(self, steps: int) -> bool:
        """By the master's clock. Between two looks at it are half as many steps as the time that is left would have."""
        now, seconds = time.monotonic(), self._every_seconds or 0.0
        left = seconds - (now - self._last_time)
        per_step = max(now - self._asked_time, 1e-9) / max(steps - self._asked_step, 1)
        due = left <= 0
        pause = 1 if due else int(min(max(left / per_step / 2, 1), 1 << 20))
        said = collectives.broadcast(np.array([int(due), pause], np.int64))
        self._asked_time, self._asked_step, self._ask_at = now, steps, steps + int(said[1])
        if said[0]:
            self._last_time = now
        return bool(said[0])
