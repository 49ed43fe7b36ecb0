"""SIGTERM while `fit` runs, as schedulers send it before they kill: the ranks agree on a step, save after it, and exit."""

import signal
import threading
from collections.abc import Callable
from typing import Any

from tarantella.keras import adapter
from tarantella.keras.checkpoint import randomness, state
from tarantella.keras.checkpoint.schedule import Schedule

EXIT_CODE = 128 + signal.SIGTERM
"""What a process returns that has saved and ended because of SIGTERM, and what a shell says of one that it has killed."""


class TerminationNotice:
    """Notes a SIGTERM in the place of its default action, from `begin` to `end`.

    A handler of the script's stays. So does the default action outside of the main thread, where Python allows no handlers.
    """

    def __init__(self) -> None:
        self.received = False
        self._noting = False

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)
            self._noting = True

    def end(self) -> None:
        if self._noting:
            self._noting = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def take_effect(self) -> None:
        """Ends the process, as the signal would have done, if there was one that nobody has followed so far."""
        if self.received:
            signal.raise_signal(signal.SIGTERM)

    def _note(self, _number: int, _frame: Any) -> None:
        self.received = True


# While `fit` validates, the training is saved as it was when the validation began, which starts again from there.


class StateBefore:
    """What a validation changes, as it was before: the states of metrics and random numbers, and counters."""

    def __init__(self, model: Any) -> None:
        groups = state.groups_of(model)
        changing = [v for name in groups if name not in ("weights", "optimizer") for v in groups[name]]
        self._values = [(variable, state.copy_of(variable)) for variable in changing]
        self.random = randomness.states()

    def restore(self) -> None:
        """Gives the variables their values back."""
        for variable, value in self._values:
            adapter.unwrap(variable).assign(value)


class Validation:
    """Asks during validations whether a rank is to end. Ranks must have as many batches as each other.

    Args:
        ends: whether this rank is to end.
    """

    def __init__(self, model: Any, ends: Callable[[], bool]) -> None:
        self._model = model
        self._schedule = Schedule(None, None, None, ends)
        self._batches = 0  # of all validations
        self.before: StateBefore | None = None
        """The state before the one that runs."""

    def begin(self) -> None:
        """Keras begins a validation."""
        self.before = StateBefore(self._model)
        self._schedule.begin_with(self._batches)

    def is_over(self) -> bool:
        """Whether any rank is to end, after another batch. Collective."""
        self._batches += 1
        self._schedule.due_after_step(self._batches)
        return self._schedule.is_over

    def end(self, logs: Any = None) -> None:
        """The validation has come to its end. logs: as a callback gets them."""
        self.before = None
