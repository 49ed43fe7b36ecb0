"""Whether the states of a user's metrics can be added up over ranks.

Keras' own metrics keep sums and counts. A metric that keeps a maximum, a mean, or a list, would give another number on each
number of ranks. So what each metric that is not Keras' own is given of the first batch is given to it again: its state must
begin at zero, and the batch twice must change it twice as much as once. If a batch changes the state otherwise than its parts
together, as a function does that returns the F1 score of a batch, or if the result depends on more than the metric's variables,
each rank has to give the metric the samples of all ranks.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella.keras import adapter
from tarantella.keras.trial.record import Record

States = list["NDArray[np.float64]"]


class Finding(NamedTuple):
    """What was found of a metric."""

    problem: str = ""
    """Why its states cannot be added up; empty if they can."""
    couples: bool = False
    """Whether it has to see all samples of a batch at once."""
    not_tried: str = ""
    """Why it could not be tried."""


def user_metrics(model: Any) -> list[Any]:
    """The metrics of a model that are not Keras' own, or that Keras made of a function of the user's."""
    return [m for m in adapter.given_metrics(model) if not adapter.is_builtin(m) or adapter.is_metric_of_function(m)]


def findings(metrics: Sequence[Any], whole: Record, part_records: Sequence[Record]) -> dict[int, Finding]:
    """What is found of each metric that was called, by its place. Its state is another one afterwards."""
    found = {}
    for place, metric in enumerate(metrics):
        if any(one is metric for one, _, _ in whole.metric_calls):
            try:
                found[place] = _tried(metric, whole, part_records)
            except Exception as error:  # a metric may refuse to be called twice in any way
                found[place] = Finding(not_tried=f"{type(error).__name__}: {error}")
            metric.reset_state()  # what it keeps in no variable is not restored otherwise
    return found


def _tried(metric: Any, whole: Record, part_records: Sequence[Record]) -> Finding:
    metric.reset_state()
    states = [_state(metric)]
    for _ in range(2):
        _update(metric, whole)
        states.append(_state(metric))
    problem = _problem(metric, states)
    if problem or not _has_samples(metric, whole):
        return Finding(problem)
    metric.reset_state()
    _update(metric, part_records[0])
    state, result = [tf.identity(adapter.unwrap(variable)) for variable in metric.variables], _result(metric)
    for part in part_records[1:]:
        _update(metric, part)
    couples = not all(map(_same, states[1], _state(metric)))
    for variable, value in zip(metric.variables, state, strict=True):
        variable.assign(value)
    return Finding(couples=couples or not all(map(_same, result, _result(metric))))


def _result(metric: Any) -> States:
    return [np.asarray(value, np.float64) for value in tf.nest.flatten(metric.result())]


def _update(metric: Any, record: Record) -> None:
    for one, args, kwargs in record.metric_calls:
        if one is metric:
            metric.update_state(*args, **kwargs)


def _has_samples(metric: Any, record: Record) -> bool:
    """Whether it is given tensors with an axis of samples."""
    given = [call[1:] for call in record.metric_calls if call[0] is metric]
    return all(tensor.shape.rank for tensor in tf.nest.flatten(given) if tf.is_tensor(tensor))


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
