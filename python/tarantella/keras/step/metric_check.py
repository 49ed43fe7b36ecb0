"""Refuses a user's metrics whose states are not sums: the states of several ranks could not be added up.

Keras' own metrics keep sums and counts. A metric that keeps a maximum, or a mean, would give another number on each number of
ranks. So each metric that is not Keras' own is tried once, on made-up numbers of the shapes that it will see: its state must
begin at zero, and two equal batches must change it twice as much as one.
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.step.patch import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

_SAMPLES = 4
_not_sums: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class MetricCalls:
    """The calls of metrics while a model was built."""

    def __init__(self, metrics: list[Any]) -> None:
        self.metrics = metrics
        self._calls: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def recorded(self, metric: Any) -> Callable[..., Any]:
        """The metric's `update_state`, which records the call."""
        original = metric.update_state

        def update_state(*args: Any, **kwargs: Any) -> Any:
            self._calls[id(metric)] = (args, kwargs)
            return original(*args, **kwargs)

        return update_state

    def check(self) -> None:
        """Tries the metrics that were called.

        Raises:
            UnsupportedError: one does not keep sums.
        """
        for metric in self.metrics:
            if id(metric) in self._calls:
                problem = _problem(metric, *self._calls[id(metric)])
                if problem:
                    _not_sums[metric] = problem
            if metric in _not_sums:
                raise UnsupportedError(
                    f"the metric {metric.name!r} ({type(metric).__name__}) cannot be computed on several ranks: "
                    f"{_not_sums[metric]}. Let update_state add to sums and counts that begin at zero, and compute the number "
                    "in result()"
                )


@contextmanager
def recorded(model: Any) -> Iterator[MetricCalls]:
    """Context in which the model is built, and calls of its metrics are recorded."""
    metrics = [metric for metric in adapter.given_metrics(model) if not adapter.is_builtin(metric)]
    calls = MetricCalls(metrics)
    patch = Patch([(metric, "update_state", calls.recorded(metric)) for metric in metrics])
    patch.apply()
    try:
        yield calls
    finally:
        patch.revert()


def _problem(metric: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    random = np.random.default_rng(1)
    args = tuple(tf.nest.map_structure(lambda spec, first=i == 0: _made_up(spec, first, random), a) for i, a in enumerate(args))
    kwargs = {name: tf.nest.map_structure(lambda spec: _made_up(spec, False, random), a) for name, a in kwargs.items()}
    before = _state(metric)
    try:
        metric.reset_state()
        states = [_state(metric)]
        for _ in range(2):
            metric.update_state(*args, **kwargs)
            states.append(_state(metric))
    except Exception as error:  # a metric may refuse made-up numbers in any way
        runtime.logger.warning(
            "the metric %r could not be tried on made-up numbers (%s): on several ranks it is right only if its state is sums "
            "and counts",
            metric.name,
            error,
        )
        return ""
    finally:
        for variable, value in zip(metric.variables, before, strict=True):
            variable.assign(value)
    for variable, zero, one, two in zip(metric.variables, *states, strict=True):
        if np.any(zero != 0):
            return f"its state {adapter.path(variable)} does not begin at zero"
        if not np.allclose(two, one + one, rtol=1e-3, atol=1e-6, equal_nan=True):
            return f"its state {adapter.path(variable)} is not twice as much after two equal batches as after one"
    return ""


def _state(metric: Any) -> list[NDArray[np.float64]]:
    return [np.asarray(adapter.unwrap(variable).numpy(), np.float64) for variable in metric.variables]


def _made_up(spec: Any, label: bool, random: np.random.Generator) -> Any:
    """Numbers between 0 and 1; of labels only these two, which are classes as well."""
    if spec is None or not hasattr(spec, "shape"):
        return spec
    shape = [_SAMPLES if n is None else n for n in spec.shape]
    numbers = random.integers(0, 2, shape) if label else random.uniform(0.05, 0.95, shape)
    return tf.cast(numbers, spec.dtype)
