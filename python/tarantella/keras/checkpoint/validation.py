"""SIGTERM while `fit` validates: the training is saved as it was when the validation began, which starts again from there."""

from collections.abc import Callable
from typing import Any

from tarantella.keras import adapter
from tarantella.keras.checkpoint import randomness, state
from tarantella.keras.checkpoint.schedule import Schedule


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

    def end(self) -> None:
        """The validation has come to its end."""
        self.before = None
