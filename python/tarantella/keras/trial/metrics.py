"""Whether the states of a user's metrics can be added up over ranks.

Keras' own metrics keep sums and counts. A metric that keeps a maximum, a mean, or a list, would give another number on each
number of ranks. So what each metric that is not Keras' own is given of the first batch is given to it again: its state must
begin at zero, and the batch twice must change it twice as much as once. A state that the batch does not change tells nothing:
then it is tried on other numbers, too, which are made of the same samples. If a batch changes the state otherwise than its
parts together, as a function does that returns the F1 score of a batch, or if the result depends on more than the metric's
variables, or if nothing changes a state, each rank has to give the metric the samples of all ranks.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella.keras import adapter
from tarantella.keras.trial import other_numbers
from tarantella.keras.trial.record import Record

States = list["NDArray[np.float64]"]
Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]
"""The arguments of some calls of `update_state`."""


class Finding(NamedTuple):
    """What was found of a metric."""

    problem: str = ""
    """Why its states cannot be added up; empty if they can."""
    couples: bool = False
    """Whether it has to see all samples of a batch at once."""
    not_tried: str = ""
    """Why it could not be tried."""
    is_proven: bool = False
    """Whether each of its states has changed: what does not change may be a maximum as well as a sum."""
    has_rows: bool = False
    """Whether ranks can gather what it is given."""


def user_metrics(model: Any) -> list[Any]:
    """The metrics of a model that are not Keras' own, or that Keras made of a function of the user's."""
    return [m for m in adapter.given_metrics(model) if not adapter.is_builtin(m) or adapter.is_metric_of_function(m)]


def findings(metrics: Sequence[Any], whole: Record, part_records: Sequence[Record], samples: int) -> dict[int, Finding]:
    """What is found of each metric that was called, by its place. Its state is another one afterwards.

    samples: how many there are in the whole.
    """
    found = {}
    for place, metric in enumerate(metrics):
        calls = [_calls(metric, record) for record in (whole, *part_records)]
        if calls[0]:
            try:
                found[place] = _tried(metric, calls)._replace(has_rows=_has_rows(calls, samples))
            except Exception as error:  # a metric may refuse to be called twice in any way
                found[place] = Finding(not_tried=f"{type(error).__name__}: {error}")
            metric.reset_state()  # what it keeps in no variable is not restored otherwise
    return found


def _calls(metric: Any, record: Record) -> Calls:
    return [(args, kwargs) for one, args, kwargs in record.metric_calls if one is metric]


def _tried(metric: Any, calls: Sequence[Calls]) -> Finding:
    """calls: what the metric is given of the whole, and of its parts."""
    finding, changed = _compared(metric, calls)
    for change in other_numbers.CHANGES:
        if finding.problem or finding.couples or all(changed):
            break
        with suppress(Exception):  # it may refuse other numbers in any way
            others = [[(change(*args), kwargs) for args, kwargs in some] for some in calls]
            finding, also = _compared(metric, others)
            changed = [any(both) for both in zip(changed, also, strict=True)]
    return finding._replace(is_proven=all(changed))


def _compared(metric: Any, calls: Sequence[Calls]) -> tuple[Finding, list[bool]]:
    """What is found with these numbers, and which of its states they change."""
    whole, *parts = calls
    metric.reset_state()
    states = [_state(metric)]
    for _ in range(2):
        _update(metric, whole)
        states.append(_state(metric))
    problem, changed = _problem(metric, states), [bool(np.any(np.isfinite(one) & (one != 0))) for one in states[1]]
    if problem or not all(tensor.shape.rank for tensor in _tensors(whole)):
        return Finding(problem), changed
    metric.reset_state()
    _update(metric, parts[0])
    state, result = [tf.identity(adapter.unwrap(variable)) for variable in metric.variables], _result(metric)
    for part in parts[1:]:
        _update(metric, part)
    couples = not all(map(_same, states[1], _state(metric)))
    for variable, value in zip(metric.variables, state, strict=True):
        variable.assign(value)
    return Finding(couples=couples or not all(map(_same, result, _result(metric)))), changed


def _result(metric: Any) -> States:
    return [np.asarray(value, np.float64) for value in tf.nest.flatten(metric.result())]


def _update(metric: Any, calls: Calls) -> None:
    for args, kwargs in calls:
        metric.update_state(*args, **kwargs)


def _tensors(calls: Calls) -> list[Any]:
    return [tensor for tensor in tf.nest.flatten(calls) if tf.is_tensor(tensor)]


def _has_rows(calls: Sequence[Calls], samples: int) -> bool:
    """Whether the metric is given tensors alone that have a row for each sample: ranks can gather them."""

    def rows(one: Calls) -> set[int]:
        dense = (isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string and tensor.shape.rank for tensor in _tensors(one))
        return {tensor.shape[0] for tensor in _tensors(one)} if all(dense) else set()

    sizes = [rows(one) for one in calls]
    return all(len(one) == 1 for one in sizes) and sizes[0] == {samples} and sum(map(min, sizes[1:])) == samples


def _problem(metric: Any, states: list[States]) -> str:
    """The fault of a metric that had these states: after a reset, after one batch, after two."""
    for variable, zero, one, two in zip(metric.variables, *states, strict=True):
        if np.any(zero != 0):
            return f"its state {adapter.path(variable)} does not begin at zero"
        if not _same(two, one + one):
            return f"its state {adapter.path(variable)} is not twice as much after two equal batches as after one"
    return ""


def _same(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    return np.allclose(first, second, rtol=1e-3, atol=1e-6, equal_nan=True)


def _state(metric: Any) -> States:
    return [np.asarray(adapter.unwrap(variable).numpy(), np.float64) for variable in metric.variables]
