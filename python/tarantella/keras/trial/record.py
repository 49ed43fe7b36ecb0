"""What one run of a step gave, and the attributes of a model by which it is noted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step import losses, noise
from tarantella.keras.step.patch import Attribute
from tarantella.keras.trial import variations
from tarantella.keras.trial.trial_step import TrialStep

Calls = dict[tuple[int, int], Any]
"""By the id of an object, and the number of the call of its method."""


class NotTaken:
    """Stands for the gradient of a value that is looked at. It goes to an optimizer; what computes with it fails.

    Attributes:
        place: of the value in `Record.values`.
    """

    def __init__(self, place: int) -> None:
        self.place = place

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this gradient was not taken")


@dataclass
class Record:
    """The results of one run of a step."""

    layer_outputs: list[tuple[Any, Any]] = field(default_factory=list)
    """The outputs of layers, if they were to be looked at."""
    outputs: list[Any] = field(default_factory=list)
    """Those of the model, of each call; in a prediction, those of the step."""
    losses: Calls = field(default_factory=dict)
    """The value of each loss given to `compile`."""
    loss_bytes: dict[int, Any] = field(default_factory=dict)
    """The bytes that each is given, by its id; negative if they are in no dense tensors."""
    given: Calls = field(default_factory=dict)
    """What each of these losses gave to the step."""
    loss_calls: list[tuple[Any, tuple[Any, Any, Any]]] = field(default_factory=list)
    """Each of these losses that was called, and what it was given."""
    loss_draws: int = 0
    """How often losses have drawn random numbers."""
    divisors: list[Any] = field(default_factory=list)
    """What losses have divided by."""
    added: Calls = field(default_factory=dict)
    """The value that each layer added by `add_loss`."""
    metric_calls: list[tuple[Any, Any, Any]] = field(default_factory=list)
    """Each call of a metric of the user's: the metric, and what it was given."""
    updates: Calls = field(default_factory=dict)
    """The number that a mean was given, by the metric's id and the number of the call."""
    names: dict[int, str] = field(default_factory=dict)
    """The names of these metrics, by id."""
    logs: dict[int, Any] = field(default_factory=dict)
    """The logs that are no results of metrics, by their place."""
    log_names: list[str] = field(default_factory=list)
    """The names of the logs, by their place."""
    results: list[Any] = field(default_factory=list)
    """The results of metrics."""
    kept: list[Any] = field(default_factory=list)
    """What the step keeps for the next one (`kept_state`), after it."""
    values: list[Any] = field(default_factory=list)
    """The values that were differentiated, one for each call of a tape's `gradient`, if they were to be looked at."""
    gradients: list[tuple[Any, Any]] = field(default_factory=list)
    """Each gradient that an optimizer was given, and its variable."""
    taken: list[tuple[Any, Any]] = field(default_factory=list)
    """Each gradient that a tape gave, and its variable, if they were to be looked at."""
    tensors: list[Any] = field(default_factory=list)
    """The same gradients, as the step got them."""
    passed_on: bool = True
    """Whether optimizers were given just what tapes gave: a step may compute with its gradients for its logs alone."""
    draws: int = 0
    """How often random numbers had been drawn when a tape gave the last of them."""
    draws_later: bool = False
    """Whether random numbers were drawn between that and an optimizer's update."""

    def in_graph(self) -> list[Any]:
        """The tensors in the record, in their order."""
        return [tensor for tensor in tf.nest.flatten(self._traced()) if tf.is_tensor(tensor)]

    def with_values(self, values: Sequence[Any]) -> "Record":
        """The record with other tensors in the place of those."""
        given = iter(values)
        traced = self._traced()
        flat = [next(given) if tf.is_tensor(leaf) else leaf for leaf in tf.nest.flatten(traced)]
        return replace(self, **tf.nest.pack_sequence_as(traced, flat))

    def _traced(self) -> dict[str, Any]:
        names = (
            "layer_outputs",
            "outputs",
            "losses",
            "loss_bytes",
            "divisors",
            "added",
            "metric_calls",
            "updates",
            "logs",
            "values",
        )
        return {name: getattr(self, name) for name in names}


def total(values: Any) -> tf.Tensor:
    """The sum of all elements of some tensors: a scalar, float64."""
    tensors = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    return tf.add_n([tf.reduce_sum(tf.cast(tensor, tf.float64)) for tensor in tensors])


def as_array(gradient: Any) -> Any:
    """A gradient as numbers that are added up like it. Of rows of a table it is their sum, each with a factor of its own."""
    if isinstance(gradient, tf.IndexedSlices):
        factors = np.cos(np.asarray(gradient.indices, np.float64)).reshape(-1, *[1] * (gradient.values.shape.rank - 1))
        return (np.asarray(gradient.values, np.float64) * factors).sum(0)
    return np.asarray(gradient)


def recorders(model: Any, record: Record, step: TrialStep) -> Iterator[Attribute]:
    """The attributes of the model by which a run is noted."""

    def note_results(value: Any) -> None:
        record.results.extend(tf.nest.flatten(value))

    yield model, "call", recorded(model.call, result=record.outputs.append)
    for layer in adapter.layers_of(model):
        yield layer, "add_loss", recorded(layer.add_loss, arguments=_note_added(record, layer))
    hook = adapter.optimizer_hook()
    for optimizer in adapter.held_optimizers(model):
        yield optimizer, hook, adapter.as_method(_recorded_apply(record))
        for name in adapter.overridden_hooks(optimizer):
            yield optimizer, name, adapter.taking_pairs(_recorded_apply(record))
        for name in adapter.unscale_hooks(optimizer):
            yield optimizer, name, list  # it computes with gradients, which a run may not have taken
    yield from adapter.loss_hooks(model, lambda loss: recorded_loss(record, loss, step))
    means = adapter.mean_metrics(model)
    for metric in means:
        yield metric, "update_state", _recorded_update(record, metric)
    for metric in adapter.given_metrics(model):
        if all(metric is not mean for mean in means):
            yield metric, "update_state", recorded(metric.update_state, arguments=_note_metric(record, metric))
    for metric in model.metrics:
        yield metric, "result", recorded(metric.result, result=note_results)
    yield model, "get_metrics_result", recorded(model.get_metrics_result, result=note_results)


def recorded(
    original: Callable[..., Any],
    arguments: Callable[..., None] | None = None,
    result: Callable[[Any], None] | None = None,
) -> Callable[..., Any]:
    """A method whose arguments are noted, or its result."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if arguments is not None:
            arguments(*args, **kwargs)
        value = original(*args, **kwargs)
        if result is not None:
            result(value)
        return value

    return tf.autograph.experimental.do_not_convert(call)  # type: ignore[no-any-return]


def _note_added(record: Record, layer: Any) -> Callable[..., None]:
    calls = iter(range(1 << 30))

    def note(loss: Any, *_args: Any, **_kwargs: Any) -> None:
        tensors = [value for value in tf.nest.flatten(loss) if value is not None and not callable(value)]
        if tensors:
            record.added[id(layer), next(calls)] = total(tensors)

    return note


def _note_metric(record: Record, metric: Any) -> Callable[..., None]:
    return lambda *args, **kwargs: record.metric_calls.append((metric, args, kwargs))


def recorded_loss(record: Record, loss: Any, step: TrialStep) -> Callable[..., Any]:
    """The loss, whose values and arguments are noted."""
    scaled, calls, steps_calls = losses.across_ranks(loss, step), iter(range(1 << 30)), iter(range(1 << 30))

    def call(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        before = noise.number_of_draws()
        record.loss_calls.append((loss, (y_true, y_pred, sample_weight)))
        value = scaled(y_true, y_pred, sample_weight)
        record.losses[id(loss), next(calls)] = total(value)
        for varied in variations.of_all(y_true, y_pred, sample_weight):
            record.losses[id(loss), next(calls)] = total(scaled(*varied))
        is_sum = id(loss) in step.loss_kinds.by_sums  # of which a call that fails tells nothing
        for varied in [] if adapter.is_builtin_loss(loss) else variations.of_own(y_true, y_pred, sample_weight, not is_sum):
            try:
                number = total(scaled(*varied))
            except Exception:  # it may take no such labels
                number = tf.constant(np.nan, tf.float64)
            record.losses[id(loss), next(calls)] = number
        record.loss_draws += noise.number_of_draws() - before
        given = [tensor for tensor in tf.nest.flatten((y_true, y_pred, sample_weight)) if tensor is not None]
        dense = all(isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string for tensor in given)
        record.loss_bytes[id(loss)] = tf.add_n([t.dtype.size * tf.size(t, tf.int64) for t in given]) if dense else -1
        key = id(loss), next(steps_calls)
        record.given[key] = step.given.get(key, value)
        return record.given[key]

    return call


def _recorded_apply(record: Record) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None, **kwargs: Any) -> None:
        grads = list(grads)
        record.draws_later |= bool(record.taken) and noise.number_of_draws() > record.draws
        variables = [None] * len(grads) if trainable_variables is None else list(trainable_variables)
        pairs = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        record.passed_on &= {id(g) for g, _ in pairs} <= {id(taken) for taken in record.tensors}
        record.gradients.extend((g if isinstance(g, NotTaken) else as_array(g), v) for g, v in pairs)

    return apply


def _recorded_update(record: Record, metric: Any) -> Callable[..., Any]:
    original, calls = metric.update_state, iter(range(1 << 30))
    record.names[id(metric)] = metric.name

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        place, number = next(calls), tf.convert_to_tensor(values)
        if number.shape.rank == 0:
            record.updates[id(metric), place] = tf.cast(number, tf.float64)
        return original(values, sample_weight=sample_weight)

    return update_state
