"""Finds out how a training step of the user's own makes its gradients of those of a batch's parts, before the first step.

A `train_step` or `compute_loss` that a model's class defines is run eagerly on three made-up samples, and on two and one of
them. The optimizer does not see the gradients, and all state is restored. Gradients that are sums over samples get the weight
that makes the global ones right, and so do the numbers that the step tracks and logs. A step that couples samples is refused.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.step import losses, trial
from tarantella.keras.step.patch import Patch
from tarantella.keras.step.trial import Kind, NotComparable, Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tarantella.keras.step.losses import LossKinds
    from tarantella.keras.step.patch import Attribute
    from tarantella.keras.step.trial import Answer

PARTS = Parts(2, 1)
_ROUNDING = 1e-5  # of the gradients of all variables: the gradient of one that should be zero is not more
_OFF = {"rate": 0.0, "dropout": 0.0, "recurrent_dropout": 0.0, "stddev": 0.0}  # what makes layers draw noise


@dataclass
class Record:
    """What one run of a step gave."""

    gradients: list[tuple[Any, Any]] = field(default_factory=list)
    """Each gradient that an optimizer was given, and its variable."""
    updates: dict[tuple[int, int], Any] = field(default_factory=dict)
    """The number that a mean was given, by the metric's id and the number of the call."""
    names: dict[int, str] = field(default_factory=dict)
    """Of these metrics, by id."""
    log_names: list[str] = field(default_factory=list)
    """Of the logs, by their place."""
    logs: dict[int, Any] = field(default_factory=dict)
    """The logs that are no results of metrics, by their place."""
    results: list[Any] = field(default_factory=list)
    """The results of metrics."""


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
        self._warned = False

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
        except (context.CollectiveInTrial, NotComparable) as error:
            runtime.logger.info(
                "%s could not be compared with itself on parts of a batch: %s. On several ranks it is right if its loss is a "
                "mean over samples",
                name,
                error,
            )
        self._kinds.summed_updates.update((name, *key) for key, kind in found.updates.items() if kind is Kind.SUM)
        self._kinds.summed_logs.update((name, place) for place, kind in found.logs.items() if kind is Kind.SUM)
        if found.gradients is Kind.SUM:
            self._kinds.summed_gradients = True
            runtime.logger.info("the gradients of train_step are sums over samples: ranks add up theirs")
        text = " ".join(kind.name for kind in (found.gradients, *found.updates.values(), *found.logs.values())).encode()
        collectives.require_same(f"the trial of {name} on made-up samples", **{"what it found": zlib.crc32(text)})

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
        if not answer.accept_approximate:
            raise UnsupportedError(f"{said}. {trial.WAYS_OUT_OF_STEP}")
        if not self._warned:
            self._warned = True
            runtime.logger.warning("%s. accept_approximate=True: the mean of the ranks' gradients is used instead", said)

    # ------------------------------------------------------------------------------------------------------ the runs

    def _compared(self, name: str, batch_spec: Any) -> Found:
        model, reason = self._model, "its gradients are zero or not finite on made-up samples"
        trial.check_dense(batch_spec)
        if any(getattr(layer, "compute_dtype", "") in ("float16", "bfloat16") for layer in adapter.layers_of(model)):
            raise NotComparable("it computes in 16 bits")
        owners = [*adapter.layers_of(model), *adapter.held_optimizers(self._model), *model.metrics]
        variables = [*model.variables, *adapter.metric_variables(model), *adapter.seed_variables(model)]
        with trial.leaving_no_trace([*variables, *adapter.optimizer_variables(model), *trial.variables_in(owners)]):
            for labels in (_numbers, _classes):
                try:
                    return self._compared_on(name, _made_up(batch_spec, labels))
                except NotComparable as error:
                    reason = str(error)
                except context.CollectiveInTrial:
                    raise
                except Exception as error:  # a step may refuse made-up numbers in any way
                    reason = f"{type(error).__name__} on made-up samples: {str(error).splitlines()[0] if str(error) else ''}"
        raise NotComparable(reason)

    def _compared_on(self, name: str, batch: Any) -> Found:
        step, weights = trial.TrialStep(self._kinds), PARTS.weights()
        whole = self._run(name, batch, step, 1.0)
        parts = [self._run(name, part, step, w) for part, w in zip(PARTS.of(batch), weights, strict=True)]

        def kinds(of: Callable[[Record], dict[Any, Any]]) -> dict[Any, Kind]:
            common = [key for key in of(whole) if all(key in of(part) for part in parts)]
            return {key: trial.compared(of(whole)[key], [of(part)[key] for part in parts], weights) for key in common}

        found = Found(updates=kinds(lambda record: record.updates), logs=kinds(lambda record: record.logs))
        if name == "train_step":
            found.gradients = self._kind_of_gradients(whole, parts, lambda: self._run(name, batch, step, 1.0))
        if found.gradients is not Kind.COUPLED:
            shown = [
                f"what the metric {whole.names[metric]!r} is given"
                for (metric, _), kind in found.updates.items()
                if kind is Kind.COUPLED
            ]
            shown += [f"the log {whole.log_names[place]!r}" for place, kind in found.logs.items() if kind is Kind.COUPLED]
            if shown:
                runtime.logger.warning(
                    "%s: %s: neither a mean nor a sum over samples: the ranks' own numbers are shown as their mean, weighted "
                    "by samples",
                    name,
                    " and ".join(shown),
                )
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

    def _run(self, name: str, batch: Any, step: trial.TrialStep, weight: float) -> Record:
        """Runs the step of the plain model on these samples, without an update."""
        record = Record()
        patch = Patch([*self._recorders(record, step), *_without_noise(self._model), *_without_batch_statistics(self._model)])
        patch.apply()
        try:
            with step.computing(weight):
                logs = getattr(self._model, name)(batch)
        finally:
            patch.revert()
        results = {id(leaf) for leaf in record.results}
        logs = logs if isinstance(logs, dict) else {}
        record.log_names = [str(key) for key in sorted(logs) for _ in tf.nest.flatten(logs[key])]
        for place, leaf in enumerate(tf.nest.flatten(logs)):
            if id(leaf) not in results and tf.is_tensor(leaf):
                record.logs[place] = np.asarray(leaf, np.float64)
        return record

    def _recorders(self, record: Record, step: trial.TrialStep) -> Iterator[Attribute]:
        hook = adapter.optimizer_hook()
        for optimizer in adapter.held_optimizers(self._model):
            yield optimizer, hook, adapter.as_method(_recorded_apply(record))
        yield from adapter.loss_hooks(self._model, lambda loss: losses.across_ranks(loss, step))
        for metric in adapter.mean_metrics(self._model):
            yield metric, "update_state", _recorded_update(record, metric)
        for metric in self._model.metrics:
            yield metric, "result", _recorded_result(record, metric)


def _recorded_apply(record: Record) -> Callable[..., Any]:
    def apply(grads: Any, trainable_variables: Any = None, **kwargs: Any) -> None:
        grads = list(grads)
        variables = [None] * len(grads) if trainable_variables is None else list(trainable_variables)
        pairs = [(g, v) for g, v in zip(grads, variables, strict=True) if g is not None]
        record.gradients.extend((_as_array(g), v) for g, v in pairs)

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


# ------------------------------------------------------------------------------------------------------ made-up samples


def _made_up(batch_spec: Any, labels: Callable[..., Any]) -> Any:
    """A batch of these specs. The samples differ much from each other: what couples samples shall show."""
    random, shapes = np.random.default_rng(2), trial.Shapes(PARTS.whole, batch_spec)

    def made(spec: Any, make: Callable[..., Any]) -> Any:
        if spec is None:
            return None
        shape = shapes.of(spec)
        scale = np.array([0.4, 1.0, 2.0]).reshape(-1, *[1] * (len(shape) - 1))
        if spec.dtype.is_floating:
            return tf.cast(make(random, shape, scale), spec.dtype)
        return tf.cast(random.integers(0, 2, shape) if make is _inputs else np.where(_is_zero(shape), 0, 1), spec.dtype)

    def all_made(specs: Any, make: Callable[..., Any]) -> Any:
        return tf.nest.map_structure(lambda spec: made(spec, make), specs)

    if not isinstance(batch_spec, tuple):
        return all_made(batch_spec, _inputs)
    makers = (_inputs, labels, _weights)
    return tuple(all_made(specs, makers[min(i, 2)]) for i, specs in enumerate(batch_spec))


def _inputs(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    return random.normal(size=shape) * scale


def _numbers(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    return np.where(_is_zero(shape), 0, 0.05 + 0.9 * random.random(shape))


def _is_zero(shape: Sequence[int]) -> Any:
    """Every other number of the second sample: where zeros do not count, the samples count for different numbers."""
    every_other = np.arange(np.prod(shape[1:], dtype=np.int64)).reshape(shape[1:]) % 2 == 0
    return np.stack([every_other & (i == 1) for i in range(shape[0])]) if shape else np.zeros(shape, bool)


def _classes(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    if len(shape) > 1 and shape[-1] > 1:
        return np.eye(shape[-1])[random.integers(0, shape[-1], shape[:-1])]
    return random.integers(0, 2, shape)


def _weights(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    return 0.2 + 1.6 * random.random(shape)
