"""Finds out how a training step of the user's own makes its gradients of those of a batch's parts, before the first step.

A `train_step` or `compute_loss` that a model's class defines is run eagerly on three made-up samples, and on two and one of
them. The optimizer does not see the gradients, and all state is restored. First the values alone are compared that the step
differentiates; if they leave a doubt, the gradients are. Gradients that are sums over samples get the weight that makes the
global ones right, and so do the numbers that the step tracks and logs. A step that couples samples is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import runtime
from tarantella.keras import adapter, context
from tarantella.keras.step import made_up, step_run, trial, verdict
from tarantella.keras.step.step_run import NotTaken, run_step
from tarantella.keras.step.trial import Kind, NotComparable, Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tarantella.keras.step.losses import LossKinds
    from tarantella.keras.step.step_run import Record
    from tarantella.keras.step.trial import Answer

PARTS = Parts(2, 1)
_ROUNDING = 1e-5  # of the gradients of all variables: the gradient of one that should be zero is not more
_SAME_VALUE = 1e-5  # relative: much less than for gradients, because a large value may hide a small one that has gradients


class PartsFail(NotComparable):
    """The step can be run on a batch, and not on parts of it; the text is a message."""


@dataclass
class Coupling:
    """What a step makes of the samples of a batch together: a gradient that differs most from that of the parts."""

    variable: str
    percent: float


@dataclass
class Found:
    """What a trial of a step found: the kinds of its gradients together, of what means were given, and of its logs."""

    gradients: Kind = Kind.UNKNOWN
    updates: dict[tuple[int, int], Kind] = field(default_factory=dict)
    logs: dict[int, Kind] = field(default_factory=dict)


class StepTrial:
    """The trial of a model's own steps.

    Args:
        kinds: what is found is noted there.
    """

    def __init__(self, model: Any, kinds: LossKinds) -> None:
        self._model = model
        self._kinds = kinds
        self._tried: set[str] = set()
        self._coupling: Coupling | None = None
        self._verdict = verdict.Verdict(verdict.WAYS_OUT_OF_STEP, "the mean of the ranks' gradients is used")

    def run(self, name: str, batch_spec: Any) -> None:
        """Tries the model's own step of this name, ``"train_step"`` or ``"test_step"``, once. Collective.

        Raises:
            MismatchError: a rank found something else.
        """
        if name in self._tried or not adapter.has_own(self._model, name, "compute_loss"):
            return
        self._tried.add(name)
        found = Found()
        try:
            found = self._compared(name, batch_spec)
        except PartsFail as error:
            runtime.logger.warning("%s", error)
        except (context.RefusedInTrial, NotComparable) as error:
            verdict.say_not_compared(name, error)
        self._kinds.summed_updates.update((name, *key) for key, kind in found.updates.items() if kind is Kind.SUM)
        self._kinds.summed_logs.update((name, place) for place, kind in found.logs.items() if kind is Kind.SUM)
        if found.gradients is Kind.SUM:
            self._kinds.summed_gradients = True
            runtime.logger.info("the gradients of train_step are sums over samples: ranks add up theirs")
        verdict.require_same(f"the trial of {name}", [found.gradients, *found.updates.values(), *found.logs.values()])

    def check(self, is_divided: bool, answer: Answer) -> None:
        """Refuses a training step that couples samples, or warns once if the user accepts it.

        Raises:
            UnsupportedError: it couples samples.
        """
        if self._coupling is None or not is_divided:
            return
        said = (
            f"the training step of {type(self._model).__name__} couples the samples of a batch: on {PARTS.whole} "
            f"made-up samples the gradient of {self._coupling.variable} differs by {self._coupling.percent:.2g} % from "
            f"the mean of those of {PARTS.first} and {PARTS.second} of them, weighted by samples, and is not their sum either"
        )
        self._verdict.refuse([said], answer)

    # ------------------------------------------------------------------------------------------------------ the runs

    def _compared(self, name: str, batch_spec: Any) -> Found:
        model, reason = self._model, "its gradients are zero or not finite on made-up samples"
        trial.check_dense(batch_spec)
        step_run.refuse_16_bits(model)
        with trial.leaving_no_trace(step_run.state_of(model)):
            for labels in (made_up.numbers, made_up.classes):
                try:
                    return self._compared_on(name, made_up.batch(PARTS.whole, batch_spec, labels))
                except (context.RefusedInTrial, PartsFail):
                    raise
                except NotComparable as error:
                    reason = str(error)
                except Exception as error:  # a step may refuse made-up numbers in any way
                    reason = f"{_first_line(error)} on made-up samples"
        raise NotComparable(reason)

    def _compared_on(self, name: str, batch: Any) -> Found:
        if name == "train_step":
            found = self._compared_by_values(name, batch)
            if found is not None:
                return found
        whole, parts = self._run(name, batch)
        found = _found(whole, parts)
        if name == "train_step":
            found.gradients = self._kind_of_gradients(whole, parts, lambda: self._run(name, batch, parts=False)[0])
        if found.gradients is not Kind.COUPLED:
            _say_neither(name, whole, found)
        return found

    def _run(self, name: str, batch: Any, values_only: bool = False, parts: bool = True) -> tuple[Record, list[Record]]:
        """What the step gives for the whole batch, and for its parts."""
        step = trial.TrialStep(self._kinds)
        whole = run_step(self._model, name, batch, step, 1.0, values_only)
        weighted = zip(PARTS.of(batch), PARTS.weights(), strict=True) if parts else ()
        try:
            return whole, [run_step(self._model, name, part, step, weight, values_only) for part, weight in weighted]
        except (context.RefusedInTrial, NotComparable):
            raise
        except Exception as error:
            raise PartsFail(
                f"{name} can be run on {PARTS.whole} made-up samples, and not on {PARTS.first} or {PARTS.second} of them "
                f"({_first_line(error)}). Each rank gets its part of a batch along the first axis of its tensors: if this is "
                "no axis of samples, use fit(..., tnt_distribute_dataset=False)"
            ) from error

    def _compared_by_values(self, name: str, batch: Any) -> Found | None:
        """What the values tell that the step differentiates; None if they leave a doubt."""
        try:
            whole, parts = self._run(name, batch, values_only=True)
        except context.RefusedInTrial:
            raise
        except Exception:  # it computes with gradients, or does not take these samples
            return None
        records = [whole, *parts]
        if any(len(record.values) != len(whole.values) for record in records):
            return None
        if not whole.gradients or not all(isinstance(g, NotTaken) for record in records for g, _ in record.gradients):
            return None
        places, weights = {gradient.place for gradient, _ in whole.gradients}, PARTS.weights()
        kinds = {
            trial.compared(whole.values[i], [part.values[i] for part in parts], weights, tolerance=_SAME_VALUE) for i in places
        }
        if kinds not in ({Kind.MEAN}, {Kind.SUM}):
            return None
        found = _found(whole, parts)
        found.gradients = kinds.pop()
        _say_neither(name, whole, found)
        return found

    def _kind_of_gradients(self, whole: Record, parts: Sequence[Record], again: Callable[[], Record]) -> Kind:
        variables = [id(variable) for _, variable in whole.gradients]
        if not variables:
            raise NotComparable("it gives no gradients to the optimizers of the model")
        if any([id(variable) for _, variable in part.gradients] != variables for part in parts):
            raise NotComparable("it does not give the same gradients to its optimizers for any samples")
        floor = _ROUNDING * max(float(np.linalg.norm(gradient)) for gradient, _ in whole.gradients)
        kinds, worst = set(), Coupling("", 0.0)
        for i, (gradient, variable) in enumerate(whole.gradients):
            of_parts = [part.gradients[i][0] for part in parts]
            kinds.add(trial.compared(gradient, of_parts, PARTS.weights(), floor))
            mean = sum(w * g for w, g in zip(PARTS.weights(), of_parts, strict=True))
            size = max(float(np.linalg.norm(gradient)), float(np.linalg.norm(mean)), floor)
            percent = 100 * float(np.linalg.norm(gradient - mean)) / size if size else 0.0
            if percent > worst.percent:
                worst = Coupling(adapter.path(variable), percent)
        kinds.discard(Kind.UNKNOWN)
        if not kinds:
            raise NotComparable("its gradients are zero or not finite on made-up samples")
        if kinds in ({Kind.MEAN}, {Kind.SUM}):
            return kinds.pop()
        repeated = zip(whole.gradients, again().gradients, strict=True)
        if not all(np.allclose(first, second, rtol=1e-4, atol=floor) for (first, _), (second, _) in repeated):
            raise NotComparable("it draws random numbers")
        self._coupling = worst
        return Kind.COUPLED


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def _found(whole: Record, parts: Sequence[Record]) -> Found:
    """How the numbers that means were given, and the logs, are made of those of the parts."""

    def kinds(of: Callable[[Record], dict[Any, Any]]) -> dict[Any, Kind]:
        common = [key for key in of(whole) if all(key in of(part) for part in parts)]
        return {key: trial.compared(of(whole)[key], [of(part)[key] for part in parts], PARTS.weights()) for key in common}

    return Found(updates=kinds(lambda record: record.updates), logs=kinds(lambda record: record.logs))


def _say_neither(name: str, whole: Record, found: Found) -> None:
    """Warns of numbers whose mean over ranks is not that of one device."""
    metrics = [whole.names[metric] for (metric, _), kind in found.updates.items() if kind is Kind.COUPLED]
    logs = [whole.log_names[place] for place, kind in found.logs.items() if kind is Kind.COUPLED]
    shown = [f"what the metric {metric!r} is given" for metric in metrics] + [f"the log {log!r}" for log in logs]
    if shown:
        runtime.logger.warning(
            "%s: %s: neither a mean nor a sum over samples: the ranks' own numbers are shown as their mean, weighted by "
            "samples",
            name,
            " and ".join(shown),
        )
