"""One run of a training step of the user's own on a few made-up samples, and what it gave, without an update.

Gradients take most of a run's time. So the values that a step differentiates can be looked at instead: how the value of a batch
is made of those of its parts, its gradients are made of theirs as well.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step import batch_sums, losses, noise, tapes, trial
from tarantella.keras.step.patch import Patch
from tarantella.keras.step.trial import NotComparable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tarantella.keras.step.patch import Attribute

_OFF = {"rate": 0.0, "dropout": 0.0, "recurrent_dropout": 0.0, "stddev": 0.0}  # what makes layers draw noise


@dataclass
class Record:
    """The results of one run of a step."""

    gradients: list[tuple[Any, Any]] = field(default_factory=list)
    """Each gradient that an optimizer was given, and its variable."""
    updates: dict[tuple[int, int], Any] = field(default_factory=dict)
    """The number that a mean was given, by the metric's id and the number of the call."""
    names: dict[int, str] = field(default_factory=dict)
    """The names of these metrics, by id."""
    log_names: list[str] = field(default_factory=list)
    """The names of the logs, by their place."""
    logs: dict[int, Any] = field(default_factory=dict)
    """The logs that are no results of metrics, by their place."""
    results: list[Any] = field(default_factory=list)
    """The results of metrics."""
    values: list[Any] = field(default_factory=list)
    """The values that were differentiated, one for each call of a tape's `gradient`, if they were to be looked at."""
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


def run_step(
    model: Any,
    name: str,
    batch: Any,
    step: trial.TrialStep,
    weight: float,
    in_tapes: Callable[[Record], AbstractContextManager[None]] = lambda record: nullcontext(),
) -> Record:
    """Runs the step of the plain model on these samples, without an update.

    Args:
        in_tapes: the context of what the step's tapes give, such as `values_in`.
    """
    record = Record()
    sums = step.loss_kinds.own_by_sums.get(name)
    own = [] if sums is None else batch_sums.hooks(model, "compute_loss", lambda: sums, step)
    patch = Patch([*_recorders(model, record, step), *neutral(model), *own])
    patch.apply()
    try:
        with step.computing(weight), in_tapes(record):
            logs = getattr(model, name)(tf.nest.map_structure(trial.tensor, batch))
    finally:
        patch.revert()
    results = {id(leaf) for leaf in record.results}
    logs = logs if isinstance(logs, dict) else {}
    record.log_names = [str(key) for key in sorted(logs) for _ in tf.nest.flatten(logs[key])]
    for place, leaf in enumerate(tf.nest.flatten(logs)):
        if id(leaf) not in results and tf.is_tensor(leaf):
            record.logs[place] = np.asarray(leaf, np.float64)
    return record


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
        record.values.append(np.array([sum(np.asarray(value, np.float64).sum() for value in tf.nest.flatten(target))]))
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


def _recorders(model: Any, record: Record, step: trial.TrialStep) -> Iterator[Attribute]:
    hook = adapter.optimizer_hook()
    for optimizer in adapter.held_optimizers(model):
        yield optimizer, hook, adapter.as_method(_recorded_apply(record))
    yield from adapter.loss_hooks(model, lambda loss: losses.across_ranks(loss, step))
    for metric in adapter.mean_metrics(model):
        yield metric, "update_state", _recorded_update(record, metric)
    for metric in model.metrics:
        yield metric, "result", _recorded_result(record, metric)


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
            record.updates[id(metric), place] = np.asarray(number, np.float64)
        return original(values, sample_weight=sample_weight)

    return update_state


def _recorded_result(record: Record, metric: Any) -> Callable[..., Any]:
    original = metric.result

    def result() -> Any:
        value = original()
        record.results.extend(tf.nest.flatten(value))
        return value

    return result


def computes_in_16_bits(model: Any) -> bool:
    """Whether layers of the model compute in too few bits for a comparison."""
    return any(getattr(layer, "compute_dtype", "") in ("float16", "bfloat16") for layer in adapter.layers_of(model))


def refuse_16_bits(model: Any) -> None:
    """Raises if layers of the model compute in too few bits for a comparison."""
    if computes_in_16_bits(model):
        raise NotComparable("it computes in 16 bits")


def state_of(model: Any) -> list[Any]:
    """The variables that a step of the model may change."""
    owners = [*adapter.layers_of(model), *adapter.held_optimizers(model), *model.metrics]
    variables = [*model.variables, *adapter.metric_variables(model), *adapter.seed_variables(model)]
    return [*variables, *adapter.whole_optimizer_variables(model), *trial.variables_in(owners)]


def neutral(model: Any) -> list[Attribute]:
    """Attributes of layers without which samples would be coupled by design, or differ in what they are multiplied by."""
    return [*_without_noise(model), *_without_batch_statistics(model)]


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
            if getattr(layer, "fused", False):
                raise NotComparable(f"{layer.name} is a BatchNormalization, which couples samples by design")
            yield layer, adapter.batch_statistics(), adapter.with_statistics(layer, _standard_moments)


def _standard_moments(x: tf.Tensor, axes: Sequence[int], keepdims: bool = False, mask: Any = None) -> tuple[Any, Any]:
    like = tf.reduce_mean(x, axes, keepdims=keepdims)
    return tf.zeros_like(like), tf.ones_like(like)
