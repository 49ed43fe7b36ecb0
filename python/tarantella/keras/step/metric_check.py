"""Finds out before the first step whether the states of a user's metrics can be added up over ranks.

Keras' own metrics keep sums and counts. A metric that keeps a maximum, or a mean, would give another number on each number of
ranks. So each metric that is not Keras' own is tried once, on made-up numbers of the shapes that it will see: its state must
begin at zero, and two equal batches must change it twice as much as one. If a batch changes the state otherwise than its parts
together, as a function does that returns the F1 score of a batch, the metric has to see the samples of all ranks at once.
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
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_SAMPLES, _FIRST_PART = 4, 3
_not_sums: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_coupling: weakref.WeakSet[Any] = weakref.WeakSet()
_tried: weakref.WeakSet[Any] = weakref.WeakSet()


def couples_samples(metric: Any) -> bool:
    """Whether the metric has to see all samples of a batch at once."""
    return metric in _coupling


class MetricCalls:
    """The calls of metrics while a model was built.

    Attributes:
        metrics: those that are not Keras' own, or that Keras made of a function of the user's.
    """

    def __init__(self) -> None:
        self.metrics: list[Any] = []
        self._calls: dict[int, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    @contextmanager
    def recording(self, metrics: Sequence[Any]) -> Iterator[None]:
        """In this context the calls of these metrics are noted."""
        patch = Patch([(metric, "update_state", self._recorded(metric)) for metric in metrics])
        patch.apply()
        try:
            yield
        finally:
            patch.revert()

    def _recorded(self, metric: Any) -> Callable[..., Any]:
        original = metric.update_state

        def update_state(*args: Any, **kwargs: Any) -> Any:
            self._calls[id(metric)] = (args, kwargs)
            return original(*args, **kwargs)

        return update_state

    def trace_others(self, model: Any, batch_spec: Any) -> None:
        """Notes the calls of metrics that Keras made while it built the model, or before, in a graph that is thrown away."""
        others = [m for m in self.metrics if id(m) not in self._calls and m not in _tried]
        if not others or adapter.has_own(model, "train_step", "compute_metrics"):
            return

        def forward(batch: Any) -> None:
            x, y, sample_weight = adapter.keras.utils.unpack_x_y_sample_weight(batch)
            model.compute_metrics(x, y, model(x, training=False), sample_weight)

        with self.recording(others):
            tf.function(forward, autograph=False).get_concrete_function(batch_spec)

    def check(self) -> None:
        """Tries the metrics that were called.

        Raises:
            UnsupportedError: one does not keep sums.
        """
        for metric in self.metrics:
            if id(metric) in self._calls:
                _try(metric, *self._calls[id(metric)])
            if metric in _not_sums:
                raise UnsupportedError(
                    f"the metric {metric.name!r} ({type(metric).__name__}) cannot be computed on several ranks: "
                    f"{_not_sums[metric]}. Let update_state add to sums and counts that begin at zero, and compute the number "
                    "in result()"
                )


@contextmanager
def recorded(model: Any, batch_spec: Any) -> Iterator[MetricCalls]:
    """Context in which the model is built for such batches, and calls of its metrics are recorded."""
    calls = MetricCalls()
    with calls.recording([metric for metric in adapter.given_metrics(model) if not adapter.is_builtin(metric)]):
        yield calls
    calls.metrics = [m for m in adapter.given_metrics(model) if not adapter.is_builtin(m) or adapter.is_metric_of_function(m)]
    calls.trace_others(model, batch_spec)


def _try(metric: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Notes what is wrong with a metric, or whether it couples samples."""
    random = np.random.default_rng(1)
    args = tuple(tf.nest.map_structure(lambda spec, first=i == 0: _made_up(spec, first, random), a) for i, a in enumerate(args))
    kwargs = {name: tf.nest.map_structure(lambda spec: _made_up(spec, False, random), a) for name, a in kwargs.items()}
    before = _state(metric)
    _tried.add(metric)
    try:
        metric.reset_state()
        states = [_state(metric)]
        for _ in range(2):
            metric.update_state(*args, **kwargs)
            states.append(_state(metric))
        problem = _problem(metric, states)
        if problem:
            _not_sums[metric] = problem
        elif all(t is None or t.shape.rank for t in tf.nest.flatten((args, kwargs)) if t is None or tf.is_tensor(t)):
            metric.reset_state()
            for rows in (slice(None, _FIRST_PART), slice(_FIRST_PART, None)):
                metric.update_state(*_rows(args, rows), **_rows(kwargs, rows))
            if not all(map(_same, states[1], _state(metric))):
                _coupling.add(metric)
                runtime.logger.info(
                    "the metric %r couples the samples of a batch: rank 0 computes it from those of all ranks", metric.name
                )
    except Exception as error:  # a metric may refuse made-up numbers in any way
        runtime.logger.warning(
            "the metric %r could not be tried on made-up numbers (%s): on several ranks it is right only if its state is sums "
            "and counts",
            metric.name,
            error,
        )
    finally:
        for variable, value in zip(metric.variables, before, strict=True):
            variable.assign(value)


def _problem(metric: Any, states: list[list[NDArray[np.float64]]]) -> str:
    """The fault of a metric that had these states: after a reset, after one batch, after two."""
    for variable, zero, one, two in zip(metric.variables, *states, strict=True):
        if np.any(zero != 0):
            return f"its state {adapter.path(variable)} does not begin at zero"
        if not _same(two, one + one):
            return f"its state {adapter.path(variable)} is not twice as much after two equal batches as after one"
    return ""


def _same(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    return np.allclose(first, second, rtol=1e-3, atol=1e-6, equal_nan=True)


def _rows(tensors: Any, rows: slice) -> Any:
    return tf.nest.map_structure(lambda t: t[rows] if tf.is_tensor(t) else t, tensors)


def _state(metric: Any) -> list[NDArray[np.float64]]:
    return [np.asarray(adapter.unwrap(variable).numpy(), np.float64) for variable in metric.variables]


def _made_up(spec: Any, label: bool, random: np.random.Generator) -> Any:
    """Numbers between 0 and 1; of labels only these two, which are classes as well."""
    if spec is None or not hasattr(spec, "shape"):
        return spec
    shape = [_SAMPLES if n is None else n for n in spec.shape]
    numbers = random.integers(0, 2, shape) if label else random.uniform(0.05, 0.95, shape)
    return tf.cast(numbers, spec.dtype)
