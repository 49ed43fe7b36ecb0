"""How a training step of the user's own makes its gradients of those of a batch's parts.

A `train_step` or `compute_loss` that a model's class defines is run eagerly on some samples of the first batch, and on two
parts of them. The optimizer does not see the gradients, and all state is restored. First the values alone are compared that the
step differentiates; if they leave a doubt, the gradients are. Gradients that are sums over samples get the weight that makes
the global ones right, and so do the numbers that the step tracks and logs. A step that computes with its gradients, as one that
clips them does, gets those of the batch from its tapes. A step that couples samples is refused.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tarantella.keras import adapter, context
from tarantella.keras.trial.comparison import Kind, NotComparable, compared
from tarantella.keras.trial.parts import Parts
from tarantella.keras.trial.record import NotTaken, Record
from tarantella.keras.trial.run import InTapes, PartsFail, Runs, Tried, as_they_are, gradients_in, values_in

_ROUNDING = 1e-5  # of the gradients of all variables: the gradient of one that should be zero is not more
_ALIKE = 1e-3  # relative: of values of two parts that differ by less, any mean is nearly that of the whole
_SAME_VALUE = 1e-5  # relative: much less than for gradients, because a large value may hide a small one that has gradients


@dataclass
class Finding:
    """What was found of a step: the kinds of its gradients together, of given means, and of its logs."""

    gradients: Kind = Kind.UNKNOWN
    updates: dict[tuple[int, int], Kind] = field(default_factory=dict)
    logs: dict[int, Kind] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Of the numbers that are neither means nor sums."""
    variable: str = ""
    """The variable whose gradient differs most from that of the parts, where samples are coupled."""
    percent: float = 0.0
    """By how much."""
    in_tapes: bool = False
    """Whether the step computes with its gradients before an optimizer gets them."""
    noise_later: bool = False
    """Whether it draws random numbers after that."""


class OwnStep:
    """The trial of one of a model's own steps on some samples.

    Args:
        reproducible: whether the step is run on shards, of which each has gradients of its own.

    Attributes:
        records: of the whole and of the parts, in the last run.
    """

    def __init__(self, tried: Tried, name: str, parts: Parts, reproducible: bool) -> None:
        self.records: tuple[Record, list[Record]] | None = None
        self._tried, self._model = tried, tried.model
        self._name, self._parts = name, parts
        self._reproducible = reproducible

    def finding(self) -> Finding:
        """What is found.

        Raises:
            PartsFail, NotComparable, RefusedInTrial: nothing. Any other error is that of the step.
        """
        found, computes_with_gradients = None, False
        if self._name == "train_step":
            found, computes_with_gradients = self._compared_by_values()
            if found is None and computes_with_gradients:
                found = self._compared_in_tapes()
        if found is None:
            _refuse_16_bits(self._model)
            whole, parts = self.run()
            found = self._settled_finding(whole, parts)
            if self._name == "train_step":
                self._compare_gradients(found, whole, parts, self.again)
        return found

    def kind_without(self, losses: Container[int]) -> Kind:
        """How the values that the step differentiates are made, where each part computes these losses from all samples.

        losses: by id. UNKNOWN: the step does more with its gradients than to apply them, or cannot be run so.
        """
        if self._name != "train_step":
            return Kind.UNKNOWN
        try:
            whole, parts = Runs(self._tried, self._name, None, values_in, losses).records(self._parts)
            if not whole.gradients or any(len(record.values) != len(whole.values) for record in parts):
                return Kind.UNKNOWN
            kinds = self._kinds_of_values(whole, parts)
        except Exception:  # it computes with gradients, or does not take these samples
            return Kind.UNKNOWN
        return Kind.UNKNOWN if kinds <= {Kind.MEAN, Kind.UNKNOWN} else Kind.COUPLED

    def finding_of_metrics(self, whole: Record, parts: Sequence[Record]) -> Finding | None:
        """What `compute_metrics` of the model's own adds in a step of Keras'; None if it adds nothing.

        The losses and gradients of such a step are looked at by themselves.
        """
        of_losses = {id(metric) for metric in adapter.loss_metrics(self._model)}
        updates = {key: value for key, value in whole.updates.items() if key[0] not in of_losses}
        if not updates and not whole.logs:
            return None
        return replace(self._settled_finding(replace(whole, updates=updates), parts), gradients=Kind.MEAN)

    # ------------------------------------------------------------------------------------------------------ the runs

    def run(self, in_tapes: InTapes = as_they_are) -> tuple[Record, list[Record]]:
        """The results of the step for the whole, and for its parts. in_tapes: what the step's tapes give."""
        self.records = Runs(self._tried, self._name, None, in_tapes).records(self._parts)
        return self.records

    def again(self, in_tapes: InTapes = as_they_are) -> Record:
        """The results for the whole, of another run."""
        return Runs(self._tried, self._name, None, in_tapes).whole(self._parts.whole)

    def _compared_by_values(self) -> tuple[Finding | None, bool]:
        """The finding by the values that the step differentiates, or None; and whether the step computes with its gradients."""
        try:
            whole, parts = self.run(values_in)
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
        _refuse_16_bits(self._model)
        kinds = self._kinds_of_values(whole, parts)
        if kinds not in ({Kind.MEAN}, {Kind.SUM}):
            return None, False
        if kinds == {Kind.MEAN} and all(_alike([part.values[i] for part in parts]) for i in _differentiated(whole)):
            return None, False  # a model that is hardly trained: another weighting of the samples shows in gradients alone
        found = self._settled_finding(whole, parts)
        found.gradients = kinds.pop()
        return found, False

    def _kinds_of_values(self, whole: Record, parts: Sequence[Record]) -> set[Kind]:
        """How the values are made whose gradients optimizers get."""
        weights, places = self._parts.weights, _differentiated(whole)
        return {compared(whole.values[i], [part.values[i] for part in parts], weights, tolerance=_SAME_VALUE) for i in places}

    def _compared_in_tapes(self) -> Finding | None:
        """How a step that computes with its gradients makes those that its tapes give; None if it does more with the samples.

        In the runs of the parts, tapes give the gradients of the whole batch, as they will do on ranks.
        """
        whole, parts = self.run(gradients_in)
        if whole.passed_on and (self._reproducible or accumulates(self._model)):
            return None  # only its logs are made of gradients: those of its part
        is_comparable = not adapter.computes_in_16_bits(self._model)
        if is_comparable and not all(_same_gradients(whole.gradients, part.gradients) for part in parts):
            return None
        found = self._settled_finding(whole, parts)
        found.in_tapes, found.noise_later = True, whole.draws_later
        if is_comparable:
            tape_records = [_tape_record(part) for part in parts]
            self._compare_gradients(found, _tape_record(whole), tape_records, lambda: _tape_record(self.again(gradients_in)))
        return found

    # ------------------------------------------------------------------------------------------------- the comparison

    def _settled_finding(self, whole: Record, parts: Sequence[Record]) -> Finding:
        """How the numbers that means were given, and the logs, are made of those of the parts."""

        def kinds(of: Callable[[Record], dict[Any, Any]]) -> dict[Any, Kind]:
            common = [key for key in of(whole) if all(key in of(part) for part in parts)]
            return {key: compared(of(whole)[key], [of(part)[key] for part in parts], self._parts.weights) for key in common}

        found = Finding(updates=kinds(lambda record: record.updates), logs=kinds(lambda record: record.logs))
        metrics = [whole.names[metric] for (metric, _), kind in found.updates.items() if kind is Kind.COUPLED]
        logs = [whole.log_names[place] for place, kind in found.logs.items() if kind is Kind.COUPLED]
        found.names = [f"what the metric {metric!r} is given" for metric in metrics] + [f"the log {log!r}" for log in logs]
        return found

    def _compare_gradients(self, found: Finding, whole: Record, parts: Sequence[Record], again: Callable[[], Record]) -> None:
        variables = [id(variable) for _, variable in whole.gradients]
        if not variables:
            raise NotComparable("it gives no gradients to the optimizers of the model")
        if any([id(variable) for _, variable in part.gradients] != variables for part in parts):
            raise NotComparable("it does not give the same gradients to its optimizers for any samples")
        weights = self._parts.weights
        floor = _ROUNDING * max(float(np.linalg.norm(gradient)) for gradient, _ in whole.gradients)
        kinds = set()
        for i, (gradient, variable) in enumerate(whole.gradients):
            part_gradients = [part.gradients[i][0] for part in parts]
            kinds.add(compared(gradient, part_gradients, weights, floor))
            mean = sum(weight * g for weight, g in zip(weights, part_gradients, strict=True))
            size = max(float(np.linalg.norm(gradient)), float(np.linalg.norm(mean)), floor)
            percent = 100 * float(np.linalg.norm(gradient - mean)) / size if size else 0.0
            if percent > found.percent:
                found.variable, found.percent = adapter.path(variable), percent
        kinds.discard(Kind.UNKNOWN)
        if not kinds:
            raise NotComparable("its gradients are zero or not finite on the first batch")
        if kinds in ({Kind.MEAN}, {Kind.SUM}):
            found.gradients = kinds.pop()
            return
        repeated = zip(whole.gradients, again().gradients, strict=True)
        if not all(np.allclose(first, second, rtol=1e-4, atol=floor) for (first, _), (second, _) in repeated):
            raise NotComparable("it draws random numbers")
        found.gradients = Kind.COUPLED


def _differentiated(record: Record) -> set[int]:
    """The places of the values whose gradients optimizers were given, none of which was taken."""
    return {gradient.place for gradient, _ in record.gradients}


def _alike(values: Sequence[Any]) -> bool:
    """Whether the numbers are nearly the same."""
    numbers = np.asarray(values, np.float64)
    return bool(np.ptp(numbers) <= _ALIKE * np.abs(numbers).max())


def accumulates(model: Any) -> bool:
    """Whether an optimizer of the model adds gradients up over several steps."""
    return any(adapter.accumulating(optimizer) is not None for optimizer in adapter.held_optimizers(model))


def _refuse_16_bits(model: Any) -> None:
    if adapter.computes_in_16_bits(model):
        raise NotComparable("it computes in 16 bits")


def _tape_record(record: Record) -> Record:
    """The record with the gradients that tapes gave in the place of those that optimizers were given."""
    return replace(record, gradients=[(gradient, variable) for gradient, variable in record.taken if gradient is not None])


def _same_gradients(first: Sequence[tuple[Any, Any]], second: Sequence[tuple[Any, Any]]) -> bool:
    """Whether optimizers were given the same gradients of the same variables."""
    if [id(variable) for _, variable in first] != [id(variable) for _, variable in second]:
        return False
    return all(np.allclose(one, other, rtol=1e-4, atol=1e-6) for (one, _), (other, _) in zip(first, second, strict=True))
