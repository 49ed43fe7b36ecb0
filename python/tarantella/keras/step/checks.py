"""Checks between the steps of `fit` that ranks agree, and the synchronisation of state that is each rank's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tarantella import _native, collectives, generations, runtime
from tarantella.errors import DeadlineError, TarantellaError
from tarantella.keras import adapter
from tarantella.keras.reduction import weights
from tarantella.keras.step import accumulation, moving_statistics
from tarantella.keras.step.hooks import StepHooks


def check_first_step(model: Any, hooks: StepHooks, reduced: dict[int, Any]) -> list[Any]:
    """Checks after a first step that all gradients were reduced, and that all ranks have the same weights. Collective.

    A step of the user's own may leave variables alone (a teacher's, for example), or compute them from others in a way that
    is the same on all ranks. They need no reduction.

    Args:
        reduced: as `reduced_gradients` returns it.

    Returns:
        The trainable variables whose gradients were not reduced, and which are the same on all ranks so far.

    Raises:
        TarantellaError: a gradient was not reduced. MismatchError: the weights differ.
    """
    if not hooks.holds_all_weights:
        return []
    variables = adapter.trainable_variables(model)
    missing = [v for v in variables if id(v) not in reduced]
    wrong = missing if hooks.reproducible else weights.differing(missing)
    if wrong:
        raise TarantellaError(
            f"rank {runtime.get_rank()}: the first step did not reduce the gradient of {adapter.path(wrong[0])}"
            + (f" and {len(wrong) - 1} others" if len(wrong) > 1 else "")
            + ": it was not changed by an optimizer that the model holds, so training would not be synchronised"
        )
    weights.compare(list({**{id(v): v for v in variables}, **reduced}.values()), "after the first step")
    return missing


def reduced_gradients(model: Any, hooks: StepHooks) -> dict[int, Any]:
    """The variables whose gradients were reduced, by their ids. Collective in an elastic job, and then of the model's alone.

    A rank that was behind and has taken the outcome of the step from another one has reduced nothing itself.
    """
    own = {id(variable): variable for variable, steps in hooks.reducers.gradient_steps() if steps > 0}
    if not generations.is_elastic():
        return own
    variables = adapter.trainable_variables(model)
    anywhere = collectives.all_reduce(np.array([id(v) in own for v in variables], np.uint8), op="max")
    return {id(v): v for v, is_reduced in zip(variables, anywhere, strict=True) if is_reduced}


class StepChecks(adapter.Callback):
    """Goes first in the list of callbacks, so that the others see ranks that agree."""

    def __init__(self, hooks: StepHooks, batch_size: int = 0) -> None:
        """batch_size: how many samples all ranks have together in a step, 0 if that is not known."""
        super().__init__()
        self._hooks = hooks
        self._batch_size = batch_size
        self._steps_done = 0  # steps of all epochs
        self._checked = False
        self._not_reduced: list[Any] = []
        self._begin_ns = 0
        self._epoch = 0
        self._steps = 0

    def progress(self) -> dict[str, Any]:
        """What a newcomer of an elastic job needs to know of it."""
        unreduced = {id(variable) for variable in self._not_reduced}
        places = [i for i, v in enumerate(adapter.trainable_variables(self.model)) if id(v) in unreduced]
        return {"done": self._steps_done, "steps": self._steps, "checked": self._checked, "not reduced": places}

    def join(self, progress: dict[str, Any]) -> None:
        """This rank was a newcomer until now. progress: of another rank."""
        self._steps_done, self._steps, self._checked = (progress[name] for name in ("done", "steps", "checked"))
        variables = adapter.trainable_variables(self.model)
        self._not_reduced = [variables[place] for place in progress["not reduced"]]

    @contextmanager
    def locating_timeouts(self) -> Iterator[None]:
        """In this context the error of a timeout says how far this rank was: datasets of unequal length end in timeouts."""
        try:
            yield
        except DeadlineError as error:
            raise DeadlineError(
                f"{error}. Rank {runtime.get_rank()} had made {self._steps} steps of epoch {self._epoch + 1}: if others had "
                "made fewer or more, their datasets have other lengths"
            ) from error

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch, self._steps = epoch, 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_ns = _native.clock_ns()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._steps_done += batch + 1 - self._steps  # several with steps_per_execution
        self._steps = batch + 1
        _native.progress(self._steps_done, float(self._steps_done * self._batch_size))
        _native.trace_span("step", f"step {batch}", self._begin_ns, _native.clock_ns())
        if not self._checked:
            reduced = reduced_gradients(self.model, self._hooks)
            if (reduced and generations.is_elastic()) or not self._hooks.gradients.awaits_reduction():
                self._checked = True
                self._not_reduced = check_first_step(self.model, self._hooks, reduced)

    # BatchNormalization's averages are of each rank's own samples; validation and files get their mean
    def on_test_begin(self, logs: Any = None) -> None:
        if not self._hooks.reproducible:
            moving_statistics.average(self.model)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._bring_together()
        if self._hooks.holds_all_weights and not self._awaits_update():
            weights.compare(self._alike(), "at the end of the epoch")

    def _awaits_update(self) -> bool:
        """Whether gradients are accumulated: those of ranks differ."""
        return any(adapter.accumulating(optimizer) is not None for optimizer in adapter.held_optimizers(self.model))

    def _alike(self) -> list[Any]:
        """What all ranks must hold alike after a step: trained weights and the optimizers' state."""
        trained = [*adapter.trainable_variables(self.model), *adapter.trained_by(adapter.held_optimizers(self.model))]
        return list({id(v): v for v in (*trained, *adapter.whole_optimizer_variables(self.model))}.values())

    def _bring_together(self) -> None:
        if not self._hooks.reproducible:
            moving_statistics.average(self.model)
            accumulation.collect_on_rank_0(self.model)
            if self._not_reduced:
                weights.compare(self._not_reduced, "at the end of the epoch, though the step does not reduce their gradients")
