"""Finds out how a training step of the user's own makes its gradients of those of a batch's parts, before the first step.

A `train_step` or `compute_loss` that a model's class defines is run eagerly on three made-up samples, and on two and one of
them. The optimizer does not see the gradients, and all state is restored. First the values alone are compared that the step
differentiates; if they leave a doubt, the gradients are. Gradients that are sums over samples get the weight that makes the
global ones right, and so do the numbers that the step tracks and logs. A step that computes with its gradients, as one that
clips them does, gets those of the batch from its tapes. A step that couples samples is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.step import made_up, step_run, trial, verdict
from tarantella.keras.step.batch_sums import BatchSums
from tarantella.keras.step.step_run import NotTaken, run_step
from tarantella.keras.step.trial import Kind, NotComparable, Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tarantella.keras.step.losses import LossKinds
    from tarantella.keras.step.step_run import Record
    from tarantella.keras.step.trial import Answer

PARTS = Parts(2, 1)
InTapes = Callable[..., AbstractContextManager[None]]
_ROUNDING = 1e-5  # of the gradients of all variables: the gradient of one that should be zero is not more
_SAME_VALUE = 1e-5  # relative: much less than for gradients, because a large value may hide a small one that has gradients


class PartsFail(NotComparable):
    """The step can be run on a batch, and not on parts of it; the text is a message."""


@dataclass
class Coupling:
    """The effect of a step on a batch as a whole: the gradient that differs most from that of the parts."""

    variable: str
    percent: float


@dataclass
class Found:
    """The result of a trial of a step: the kinds of its gradients together, of given means, and of its logs."""

    gradients: Kind = Kind.UNKNOWN
    updates: dict[tuple[int, int], Kind] = field(default_factory=dict)
    logs: dict[int, Kind] = field(default_factory=dict)


class StepTrial:
    """The trial of a model's own steps.

    Args:
        kinds: what is found is noted there.
        reproducible: whether the step is run on shards, of which each has gradients of its own.
    """

    def __init__(self, model: Any, kinds: LossKinds, reproducible: bool) -> None:
        self._model = model
        self._kinds = kinds
        self._reproducible = reproducible
        self._tried: set[str] = set()
        self._coupling: Coupling | None = None
        self._restore: Callable[[], None] = lambda: None  # inside a trial: what its runs changed
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
            by_sums = self._by_sums(name, batch_spec) if "train_step" in self._kinds.own_by_sums else None
            found = by_sums or self._compared(name, batch_spec)
            if found.gradients is Kind.COUPLED:
                found = self._by_sums(name, batch_spec) or found
        except PartsFail as error:
            runtime.logger.warning("%s", error)
        except (context.RefusedInTrial, NotComparable) as error:
            verdict.say_not_compared(name, error)
        self._kinds.summed_updates.update((name, *key) for key, kind in found.updates.items() if kind is Kind.SUM)
        self._kinds.summed_logs.update((name, place) for place, kind in found.logs.items() if kind is Kind.SUM)
        if found.gradients is Kind.SUM:
            self._kinds.summed_gradients = True
            runtime.logger.info("the gradients of train_step are sums over samples: ranks add up theirs")
        if self._kinds.reduced_at_tape and name == "train_step":
            runtime.logger.info("train_step computes with its gradients: its tapes give those of the whole batch")
        at_tape = Kind.SUM if self._kinds.reduced_at_tape else Kind.MEAN
        verdict.require_same(f"the trial of {name}", [found.gradients, at_tape, *found.updates.values(), *found.logs.values()])

    def _by_sums(self, name: str, batch_spec: Any) -> Found | None:
        """What is found if the sums inside of the model's `compute_loss` are those of all samples; None if that is wrong."""
        owns_loss = adapter.has_own(self._model, "compute_loss") and not adapter.has_own(self._model, name)
        if not (owns_loss and self._kinds.may_use_sums):
            return None
        coupling, self._coupling = self._coupling, None
        sums = self._kinds.own_by_sums[name] = BatchSums("compute_loss")
        try:
            found = self._compared(name, batch_spec)
        except (context.RefusedInTrial, NotComparable):
            found = Found(Kind.COUPLED)
        if Kind.COUPLED in (found.gradients, *found.updates.values(), *found.logs.values()) or not sums.settle():
            del self._kinds.own_by_sums[name]
            self._coupling = coupling
            return None
        runtime.logger.info("compute_loss is made of sums over samples: ranks add up each of them")
        return found

    def check(self, is_divided: bool, answer: Answer) -> None:
        """Refuses a training step that couples samples, or warns once if the user accepts it.

        Raises:
            UnsupportedError: it couples samples, or it computes with gradients in a way that goes with no other option.
        """
        if self._kinds.reduced_at_tape:
            self._refuse_with_gradients()
        if self._coupling is None or not is_divided:
            return
        said = (
            f"the training step of {type(self._model).__name__} couples the samples of a batch: on {PARTS.whole} "
            f"made-up samples the gradient of {self._coupling.variable} differs by {self._coupling.percent:.2g} % from "
            f"the mean of those of {PARTS.first} and {PARTS.second} of them, weighted by samples, and is not their sum either"
        )
        self._verdict.refuse([said], answer)

    def _refuse_with_gradients(self) -> None:
        said = f"the training step of {type(self._model).__name__} computes with its gradients before its optimizer gets them"
        if self._reproducible:
            raise UnsupportedError(
                f"reproducible: {said}, and those of one shard are not those of the batch: let the optimizer clip them "
                "(clipnorm, clipvalue, global_clipnorm), or train without reproducible"
            )
        if self._accumulates():
            raise UnsupportedError(
                f"{said}, and the optimizer adds them up over several steps: let the optimizer clip them (clipnorm, clipvalue, "
                "global_clipnorm), or use no gradient_accumulation_steps"
            )

    def _accumulates(self) -> bool:
        return any(adapter.accumulating(optimizer) is not None for optimizer in adapter.held_optimizers(self._model))

    # ------------------------------------------------------------------------------------------------------ the runs

    def _compared(self, name: str, batch_spec: Any) -> Found:
        model, reason = self._model, "its gradients are zero or not finite on made-up samples"
        trial.check_dense(batch_spec)
        with trial.leaving_no_trace(step_run.state_of(model)) as self._restore:
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
        found = None
        if name == "train_step":
            found, computes_with_gradients = self._compared_by_values(name, batch)
            if found is None and computes_with_gradients:
                found = self._compared_in_tapes(batch)
        if found is None:
            step_run.refuse_16_bits(self._model)
            whole, parts = self._run(name, batch)
            found = _found(whole, parts)
            if name == "train_step":
                found.gradients = self._kind_of_gradients(whole, parts, lambda: self._run(name, batch, parts=False)[0])
            if found.gradients is not Kind.COUPLED:
                _say_neither(name, whole, found)
        return found

    def _compared_in_tapes(self, batch: Any) -> Found | None:
        """How a step that computes with its gradients makes those that its tapes give; None if it does more with the samples.

        In the runs of the parts, tapes give the gradients of the whole batch, as they will do on ranks.
        """
        name, in_tapes = "train_step", step_run.gradients_in
        whole, parts = self._run(name, batch, in_tapes)
        if whole.passed_on and (self._reproducible or self._accumulates()):
            return None  # only its logs are made of gradients: those of its part
        is_comparable = not step_run.computes_in_16_bits(self._model)
        if is_comparable and not all(_same_gradients(whole.gradients, part.gradients) for part in parts):
            return None
        self._kinds.reduced_at_tape, self._kinds.noise_in_gradients = True, whole.draws_later
        step_run.refuse_16_bits(self._model)
        found, again = _found(whole, parts), lambda: _of_tapes(self._run(name, batch, in_tapes, parts=False)[0])
        found.gradients = self._kind_of_gradients(_of_tapes(whole), [_of_tapes(part) for part in parts], again)
        if found.gradients is not Kind.COUPLED:
            _say_neither(name, whole, found)
        return found

    def _run(self, name: str, batch: Any, in_tapes: InTapes | None = None, parts: bool = True) -> tuple[Record, list[Record]]:
        """The results of the step for the whole batch, and for its parts.

        in_tapes: what the step's tapes give. Of the whole batch it is given its record, of parts also that of the whole.
        """
        step, of_whole, of_parts = trial.TrialStep(self._kinds), {}, {}
        restore = self._restore if in_tapes is step_run.gradients_in else lambda: None  # such a step may add up its gradients
        if in_tapes is not None:
            of_whole = {"in_tapes": in_tapes}
        restore()
        whole = run_step(self._model, name, batch, step, 1.0, **of_whole)
        if in_tapes is not None:
            of_parts = {"in_tapes": lambda record: in_tapes(record, whole)}
        records = []
        try:
            for part, weight in zip(PARTS.of(batch), PARTS.weights(), strict=True) if parts else ():
                restore()
                records.append(run_step(self._model, name, part, step, weight, **of_parts))
            return whole, records
        except (context.RefusedInTrial, NotComparable):
            raise
        except Exception as error:
            raise PartsFail(
                f"{name} can be run on {PARTS.whole} made-up samples, and not on {PARTS.first} or {PARTS.second} of them "
                f"({_first_line(error)}). Each rank gets its part of a batch along the first axis of its tensors: if this is "
                "no axis of samples, use fit(..., tnt_distribute_dataset=False)"
            ) from error

    def _compared_by_values(self, name: str, batch: Any) -> tuple[Found | None, bool]:
        """The finding by the values that the step differentiates, or None; and whether the step computes with its gradients."""
        try:
            whole, parts = self._run(name, batch, lambda record, of_whole=None: step_run.values_in(record))
        except context.RefusedInTrial:
            raise
        except PartsFail:
            return None, False
        except Exception:  # it computes with gradients, or does not take these samples
            return None, True
        records = [whole, *parts]
        if not all(isinstance(gradient, NotTaken) for record in records for gradient, _ in record.gradients):
            return None, True
        if not whole.gradients or any(len(record.values) != len(whole.values) for record in records):
            return None, False
        step_run.refuse_16_bits(self._model)
        places, weights = {gradient.place for gradient, _ in whole.gradients}, PARTS.weights()
        kinds = {
            trial.compared(whole.values[i], [part.values[i] for part in parts], weights, tolerance=_SAME_VALUE) for i in places
        }
        if kinds not in ({Kind.MEAN}, {Kind.SUM}):
            return None, False
        found = _found(whole, parts)
        found.gradients = kinds.pop()
        _say_neither(name, whole, found)
        return found, False

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


def _of_tapes(record: Record) -> Record:
    """The record with the gradients that tapes gave in the place of those that optimizers were given."""
    return replace(record, gradients=[(gradient, variable) for gradient, variable in record.taken if gradient is not None])


def _same_gradients(first: Sequence[tuple[Any, Any]], second: Sequence[tuple[Any, Any]]) -> bool:
    """Whether optimizers were given the same gradients of the same variables."""
    if [id(variable) for _, variable in first] != [id(variable) for _, variable in second]:
        return False
    return all(np.allclose(one, other, rtol=1e-4, atol=1e-6) for (one, _), (other, _) in zip(first, second, strict=True))


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
