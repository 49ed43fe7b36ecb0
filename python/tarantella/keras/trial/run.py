"""Runs of a model's step on a few samples, and what they gave, without an update.

A step of Keras' own is traced once, as for data of the dataset's shapes: what depends on a length that is not known before the
data is there shows in a graph alone. Steps of the user's own, legacy Keras and models with ``run_eagerly=True`` run eagerly.

The gradients take most of a step's time. So a run can look at the values that the step differentiates instead: how the value of
a batch is made of those of its parts, its gradients are made of theirs as well.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.lengths.agreement import WholeBatch
from tarantella.keras.step import batch_sums, losses, noise, tapes
from tarantella.keras.step.patch import patched
from tarantella.keras.trial.comparison import NotComparable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tarantella.keras.step.losses import LossKinds
    from tarantella.keras.step.patch import Attribute

_OFF = {"rate": 0.0, "dropout": 0.0, "recurrent_dropout": 0.0, "stddev": 0.0}  # what makes layers draw noise
Calls = dict[tuple[int, int], Any]
"""By the id of an object, and the number of the call of its method."""


class TrialStep:
    """The step that a loss is computed in while it is tried: of the whole, then of its parts.

    It stands where `CurrentStep` does in a step on ranks. The sum of what the parts' losses divide by is what that of the whole
    divides by.
    """

    def __init__(self, loss_kinds: LossKinds, spreads: bool = True) -> None:
        self.loss_kinds = loss_kinds
        self.spreads = spreads
        """Whether losses are computed of predictions that differ more, too."""
        self.divisors: list[Any] = []
        """Those of the losses that were computed in the last context, in their order."""
        self._weight: Any = 1.0
        self._of_whole: Any = None

    @contextmanager
    def computing(self, weight: Any, of_whole: Any = None) -> Iterator[None]:
        """In this context losses of a part are computed, or those of the whole.

        Args:
            weight: of the part, a number or a scalar.
            of_whole: the divisors of the whole; None while the whole is computed.
        """
        self._weight, self._of_whole, self.divisors = weight, of_whole, []
        yield

    def weight(self) -> tf.Tensor:
        """The part that these samples are of the whole."""
        return tf.cast(self._weight, tf.float64)

    @property
    def weight_of_gradients(self) -> Callable[[], tf.Tensor]:
        """Gives the same."""
        return self.weight

    def counts_alone(self) -> bool:
        """No."""
        return False

    def total(self) -> tf.Tensor | None:
        """None: a loss that ranks compute from all samples is tried on those of its part, too."""
        return None

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The divisor of the loss of the whole."""
        place = len(self.divisors)
        self.divisors.append(tf.cast(divisor, tf.float64))
        if self._of_whole is None:
            return divisor
        if place >= len(self._of_whole):
            raise NotComparable("it computes more losses of a part of the samples than of all")
        return tf.cast(self._of_whole[place], divisor.dtype)


@dataclass
class Record:
    """The results of one run of a step."""

    also: list[tuple[Any, Any]] = field(default_factory=list)
    """The outputs of layers, if they were to be looked at."""
    outputs: list[Any] = field(default_factory=list)
    """Those of the model, of each call; in a prediction, those of the step."""
    losses: Calls = field(default_factory=dict)
    """The value of each loss given to `compile`."""
    loss_bytes: dict[int, Any] = field(default_factory=dict)
    """The bytes that each is given, by its id; negative if they are in no dense tensors."""
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

    def with_values(self, values: Sequence[Any]) -> Record:
        """The record with other tensors in the place of those."""
        given = iter(values)
        traced = self._traced()
        flat = [next(given) if tf.is_tensor(leaf) else leaf for leaf in tf.nest.flatten(traced)]
        return replace(self, **tf.nest.pack_sequence_as(traced, flat))

    def _traced(self) -> dict[str, Any]:
        names = ("also", "outputs", "losses", "loss_bytes", "divisors", "added", "metric_calls", "updates", "logs", "values")
        return {name: getattr(self, name) for name in names}


def run_step(
    model: Any,
    name: str,
    batch: Any,
    step: TrialStep,
    weight: Any,
    in_tapes: Callable[[Record], AbstractContextManager[None]] = lambda record: nullcontext(),
    of_whole: Any = None,
) -> Record:
    """Runs the step of the plain model on these samples, or traces it, without an update.

    Args:
        weight: the part that the samples are of the whole.
        in_tapes: the context of what the step's tapes give, such as `values_in`.
        of_whole: the divisors of the losses of the whole; None if these samples are the whole.
    """
    record = Record()
    with (
        patched(lambda: _sums_of_batch(model, name, step)),
        patched(lambda: [*_recorders(model, record, step), *neutral(model)]),
        step.computing(weight, of_whole),
        in_tapes(record),
    ):
        logs = getattr(model, name)(batch)
    record.divisors = step.divisors
    if name == "predict_step":
        record.outputs = [logs]
    results = {id(leaf) for leaf in record.results}
    logs = logs if isinstance(logs, dict) else {}
    record.log_names = [str(key) for key in sorted(logs) for _ in tf.nest.flatten(logs[key])]
    for place, leaf in enumerate(tf.nest.flatten(logs)):
        if id(leaf) not in results and tf.is_tensor(leaf):
            record.logs[place] = leaf
    return record


def _sums_of_batch(model: Any, name: str, step: TrialStep) -> Iterator[Attribute]:
    """The methods of the model in which sums are those of the whole batch."""
    kinds, training = step.loss_kinds, name == "train_step"
    for method, sums in (("compute_loss", kinds.own_by_sums.get(name)), ("call", kinds.added_by_sums.get(training))):
        if sums is not None:
            yield from batch_sums.hooks(model, method, functools.partial(_itself, sums), step)


def _itself(value: Any) -> Any:
    return value


class Runs:
    """Runs of a step of Keras' own, of which only the values are looked at that it differentiates.

    Args:
        spec: of the batches that the step will get.
        kinds: what is known of losses.
    """

    def __init__(self, model: Any, name: str, spec: Any, kinds: LossKinds) -> None:
        self._model, self._name = model, name
        self._step, self._lengths = TrialStep(kinds), WholeBatch()
        self.also: Callable[[], list[tuple[Any, Any]]] = list
        """Gives what else was noted in a run: the outputs of layers."""
        self._spec = None if adapter.runs_eagerly(model) else tf.nest.map_structure(_of_any_size, spec)
        self._traces: dict[bool, tuple[Any, list[Record]]] = {}

    def whole(self, batch: Any) -> Record:
        """The record of the whole."""
        return self._record(batch, 1.0, None)

    def part(self, batch: Any, weight: float, whole: Record) -> Record:
        """The record of a part of it."""
        return self._record(batch, weight, whole.divisors)

    def _record(self, batch: Any, weight: float, of_whole: Any) -> Record:
        if self._spec is None:
            return self._run(batch, weight, of_whole)
        key = bool(of_whole)  # without divisors one trace serves for the whole and its parts
        if key not in self._traces:
            records: list[Record] = []

            def traced(tensors: Any, weight: Any, of_whole: Any) -> list[Any]:
                records.append(self._run(_packed(self._spec, tensors), weight, of_whole if key else None))
                return records[-1].in_graph()

            number, divisors = tf.TensorSpec([], tf.float64), [tf.TensorSpec([], tf.float64)] * len(of_whole or [])
            signature = [_tensors(self._spec), number, divisors]
            function = tf.function(traced, input_signature=signature, autograph=False, jit_compile=False)
            self._traces[key] = function, records
        function, records = self._traces[key]
        values = function(_tensors(batch), tf.constant(weight, tf.float64), list(of_whole or []))
        return records[-1].with_values(values)

    def _run(self, batch: Any, weight: Any, of_whole: Any) -> Record:
        with self._lengths.run():
            record = run_step(self._model, self._name, batch, self._step, weight, values_in, of_whole)
        if context.graph() is not None:
            record.outputs = [outputs for outputs in record.outputs if _is_here(outputs)]
            record.added = {key: value for key, value in record.added.items() if _is_here(value)}
        record.also = [(layer, outputs) for layer, outputs in self.also() if _is_here(outputs)]
        return record


def _is_here(tensors: Any) -> bool:
    """Whether the tensors are eager ones, or of the graph that is being made: not of the body of a loop in it."""
    here = context.graph()
    flat = tf.nest.flatten(tensors, expand_composites=True)
    return here is None or all(getattr(tensor, "graph", here) is here for tensor in flat)


def _tensors(structure: Any) -> list[Any]:
    """Its leaves but None, which no traced function can take."""
    return [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]


def _packed(structure: Any, tensors: Sequence[Any]) -> Any:
    given = iter(tensors)
    return tf.nest.map_structure(lambda leaf: None if leaf is None else next(given), structure)


def _of_any_size(spec: Any) -> Any:
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if isinstance(spec, tf.TensorSpec) and spec.shape.rank else spec


def total(values: Any) -> tf.Tensor:
    """The sum of all elements of some tensors: a scalar, float64."""
    tensors = [tf.convert_to_tensor(value) for value in tf.nest.flatten(values)]
    return tf.add_n([tf.reduce_sum(tf.cast(tensor, tf.float64)) for tensor in tensors])


# -------------------------------------------------------------------------------------------------- values for gradients


class NotTaken:
    """Stands for the gradient of a value that is looked at. It goes to an optimizer; what computes with it fails.

    Attributes:
        place: of the value in `Record.values`.
    """

    def __init__(self, place: int) -> None:
        self.place = place

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this gradient was not taken")


def values_in(record: Record) -> AbstractContextManager[None]:
    """The context in which tapes note the values that variables have gradients of, and give `NotTaken` for these."""

    def take(own: Callable[[], Any], target: Any, variables: list[Any]) -> list[Any]:
        record.values.append(total(target))
        return [NotTaken(len(record.values) - 1) for _ in variables]

    return tapes.replaced(take)


def gradients_in(record: Record, of_whole: Record | None = None) -> AbstractContextManager[None]:
    """The context in which the gradients of variables that tapes take are noted.

    Args:
        of_whole: a record of the whole batch. The step gets the gradients there in the place of those of its part.
    """

    def take(own: Callable[[], Any], target: Any, variables: list[Any]) -> list[Any]:
        found: list[Any] = own()
        begin = len(record.taken)
        record.taken.extend((None if g is None else _as_array(g), v) for g, v in zip(found, variables, strict=True))
        record.tensors.extend(found)
        record.draws = noise.number_of_draws()
        if of_whole is None:
            return found
        if [id(v) for _, v in of_whole.taken[begin : len(record.taken)]] != [id(v) for v in variables]:
            raise NotComparable("it does not take the same gradients for any samples")
        of_same_place = of_whole.tensors[begin : len(record.tensors)]
        return [tapes.with_gradient_of(*pair) for pair in zip(found, of_same_place, strict=True)]

    return tapes.replaced(take)


# ------------------------------------------------------------------------------------------------------ what is recorded


def _recorders(model: Any, record: Record, step: TrialStep) -> Iterator[Attribute]:
    yield model, "call", recorded_call(model, record.outputs.append)
    for layer in adapter.layers_of(model):
        yield layer, "add_loss", _recorded_add_loss(record, layer)
    hook = adapter.optimizer_hook()
    for optimizer in adapter.held_optimizers(model):
        yield optimizer, hook, adapter.as_method(_recorded_apply(record))
    yield from adapter.loss_hooks(model, lambda loss: _recorded_loss(record, loss, step))
    means = adapter.mean_metrics(model)
    for metric in means:
        yield metric, "update_state", _recorded_update(record, metric)
    for metric in adapter.given_metrics(model):
        if all(metric is not mean for mean in means):
            yield metric, "update_state", _recorded_metric(record, metric)
    for metric in model.metrics:
        yield metric, "result", _recorded_result(record, metric)


def recorded_call(layer: Any, note: Callable[[Any], None]) -> Callable[..., Any]:
    """The `call` of a layer, whose outputs are noted."""
    original = layer.call

    def call(*args: Any, **kwargs: Any) -> Any:
        outputs = original(*args, **kwargs)
        note(outputs)
        return outputs

    return tf.autograph.experimental.do_not_convert(call)  # type: ignore[no-any-return]


def _recorded_add_loss(record: Record, layer: Any) -> Callable[..., Any]:
    original, calls = layer.add_loss, iter(range(1 << 30))

    def add_loss(loss: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in tf.nest.flatten(loss) if value is not None and not callable(value)]
        if tensors:
            record.added[id(layer), next(calls)] = total(tensors)
        return original(loss, *args, **kwargs)

    return tf.autograph.experimental.do_not_convert(add_loss)  # type: ignore[no-any-return]


def _recorded_loss(record: Record, loss: Any, step: TrialStep) -> Callable[..., Any]:
    scaled, calls = losses.across_ranks(loss, step), iter(range(1 << 30))

    def call(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        before = noise.number_of_draws()
        value = scaled(y_true, y_pred, sample_weight)
        record.losses[id(loss), next(calls)] = total(value)
        if step.spreads:
            record.losses[id(loss), next(calls)] = total(scaled(y_true, _spread(y_true, y_pred), sample_weight))
        record.loss_draws += noise.number_of_draws() - before
        given = [tensor for tensor in tf.nest.flatten((y_true, y_pred, sample_weight)) if tensor is not None]
        dense = all(isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string for tensor in given)
        record.loss_bytes[id(loss)] = tf.add_n([t.dtype.size * tf.size(t, tf.int64) for t in given]) if dense else -1
        return value

    return call


def _spread(y_true: Any, y_pred: Any) -> Any:
    """Predictions that differ more between samples, as those of a model do that is hardly trained yet.

    The factor of a sample follows from its own numbers, so it is the same in a batch and in a part of it.
    """
    if not isinstance(y_pred, tf.Tensor) or not y_pred.dtype.is_floating or not y_pred.shape.rank:
        return y_pred
    of_sample = tf.fill([tf.shape(y_pred)[0]], tf.constant(0.0, y_pred.dtype))
    for factor, tensor in ((1.7, y_true), (5.0, y_pred)):
        if isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string and tensor.shape.rank:
            numbers = tf.cast(tensor, y_pred.dtype)
            of_sample += factor * tf.reduce_mean(numbers, list(range(1, tensor.shape.rank)))
    spread = y_pred * tf.reshape(0.55 + 0.4 * tf.cos(3 * of_sample), [-1, *[1] * (y_pred.shape.rank - 1)])
    if adapter.mask_of(y_pred) is not None:
        adapter.set_mask(spread, adapter.mask_of(y_pred))
    return spread


def _recorded_metric(record: Record, metric: Any) -> Callable[..., Any]:
    original = metric.update_state

    def update_state(*args: Any, **kwargs: Any) -> Any:
        record.metric_calls.append((metric, args, kwargs))
        return original(*args, **kwargs)

    return tf.autograph.experimental.do_not_convert(update_state)  # type: ignore[no-any-return]


def _recorded_apply(record: Record) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None, **kwargs: Any) -> None:
        grads = list(grads)
        record.draws_later |= bool(record.taken) and noise.number_of_draws() > record.draws
        variables = [None] * len(grads) if trainable_variables is None else list(trainable_variables)
        pairs = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        record.passed_on &= {id(g) for g, _ in pairs} <= {id(taken) for taken in record.tensors}
        record.gradients.extend((g if isinstance(g, NotTaken) else _as_array(g), v) for g, v in pairs)

    return apply


def _as_array(gradient: Any) -> Any:
    """A gradient as numbers that are added up like it. Of rows of a table it is their sum, each with a factor of its own."""
    if isinstance(gradient, tf.IndexedSlices):
        factors = np.cos(np.asarray(gradient.indices, np.float64)).reshape(-1, *[1] * (gradient.values.shape.rank - 1))
        return (np.asarray(gradient.values, np.float64) * factors).sum(0)
    return np.asarray(gradient)


def _recorded_update(record: Record, metric: Any) -> Callable[..., Any]:
    original, calls = metric.update_state, iter(range(1 << 30))
    record.names[id(metric)] = metric.name

    def update_state(values: Any, sample_weight: Any = None) -> Any:
        place, number = next(calls), tf.convert_to_tensor(values)
        if number.shape.rank == 0:
            record.updates[id(metric), place] = tf.cast(number, tf.float64)
        return original(values, sample_weight=sample_weight)

    return update_state


def _recorded_result(record: Record, metric: Any) -> Callable[..., Any]:
    original = metric.result

    def result() -> Any:
        value = original()
        record.results.extend(tf.nest.flatten(value))
        return value

    return result


def neutral(model: Any) -> list[Attribute]:
    """Attributes of layers without which samples would be coupled by design, or differ in what they are multiplied by."""
    return [*_without_noise(model), *_without_batch_statistics(model), *adapter.in_full_precision(model)]


def _without_noise(model: Any) -> Iterator[Attribute]:
    """Layers of Keras draw no noise. That of others is found when two runs differ."""
    for layer in adapter.layers_of(model):
        if adapter.is_builtin(layer):
            for name, value in _OFF.items():
                if isinstance(layer.__dict__.get(name), (int, float)):
                    yield layer, name, value


def _without_batch_statistics(model: Any) -> Iterator[Attribute]:
    """BatchNormalization, which couples samples by design, takes mean 0 and variance 1."""
    for layer in adapter.layers_of(model):
        if isinstance(layer, adapter.keras.layers.BatchNormalization):
            if getattr(layer, "fused", False):  # of legacy Keras; the other way asks for the statistics that are replaced here
                yield layer, "fused", False
            yield layer, adapter.batch_statistics(), adapter.with_statistics(layer, _standard_moments)


def _standard_moments(x: tf.Tensor, axes: Sequence[int], keepdims: bool = False, mask: Any = None) -> tuple[Any, Any]:
    like = tf.reduce_mean(x, axes, keepdims=keepdims)
    return tf.zeros_like(like), tf.ones_like(like)
