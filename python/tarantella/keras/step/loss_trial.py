"""Finds out how the losses given to `compile` are made of the losses of a batch's parts, before the first step.

Each loss is tried once, on a few made-up samples of the shapes that it will see: the loss of all is compared with what two
ranks would make of their parts. A loss that returns a sum is summed over ranks. One that couples the samples of a batch is
refused, or computed from the samples of all ranks, or taken as a mean, as the user says.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter, context
from tarantella.keras.step import losses, trial, verdict
from tarantella.keras.step.batch_sums import BatchSums
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.step.trial import Kind, NotComparable, Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tarantella.keras.step.trial import Answer

PARTS = Parts(5, 3)
_SAME_VALUE = 1e-4  # relative: rounding is much less


@dataclass
class Finding:
    """The result of a trial of a loss."""

    kind: Kind
    whole: float = 0.0
    of_parts: float = 0.0
    reason: str = ""
    """Why it could not be tried."""

    def difference(self) -> float:
        """The difference between the mean of the parts' losses and the loss of the whole, in percent."""
        return 100 * abs(self.of_parts - self.whole) / max(abs(self.whole), abs(self.of_parts))


class LossTrial:
    """The trial of the losses that a model was compiled with.

    Args:
        kinds: the findings are noted there.
    """

    def __init__(self, model: Any, kinds: LossKinds) -> None:
        self._model = model
        self._kinds = kinds
        self._calls: dict[int, tuple[Any, Any]] = {}  # the loss and the specs of its arguments, by the loss's id
        self._found: dict[int, Finding] = {}
        self._was_traced = False
        self._verdict = verdict.Verdict(verdict.WAYS_OUT_OF_LOSS, "the mean of the ranks' losses is trained")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """The model is built in this context, and the first call of each loss is recorded."""
        container = adapter.loss_container(self._model)
        replaced: list[tuple[Any, str, Any]] = []

        def replace() -> None:
            for owner, name, value in adapter.loss_hooks(self._model, self._recorded):
                replaced.append((owner, name, getattr(owner, name)))
                setattr(owner, name, value)

        def build(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            replace()

        replace()
        is_built = container is None or bool(replaced)
        if not is_built:
            original, container.build = container.build, build
        try:
            yield
        finally:
            if not is_built:
                del container.build
            for owner, name, value in replaced:
                setattr(owner, name, value)

    def _recorded(self, loss: Any) -> Callable[..., Any]:
        def call(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            specs = tf.nest.map_structure(_spec, (y_true, y_pred, sample_weight))
            self._calls.setdefault(id(loss), (loss, specs))
            return loss(y_true, y_pred, sample_weight)

        return call

    def run(self, batch_spec: Any) -> None:
        """Tries the losses that were not tried yet. All ranks find the same. Collective.

        Raises:
            MismatchError: a rank found something else.
        """
        if not self._calls:
            self._trace(batch_spec)
        new = {key: call for key, call in self._calls.items() if key not in self._found}
        for key, (loss, specs) in new.items():
            finding = _tried(self._model, loss, specs, LossKinds())
            if finding.kind is Kind.COUPLED and self._kinds.may_use_sums:
                finding = self._by_sums(key, loss, specs) or finding
            self._found[key] = finding
            if finding.kind is Kind.SUM:
                self._kinds.summed.add(key)
                runtime.logger.info("the loss %r is a sum over samples: ranks add up their parts", _name(loss))
            if finding.kind is Kind.UNKNOWN:
                verdict.say_not_compared(f"the loss {_name(loss)!r}", finding.reason)
        if new:
            verdict.require_same("the trial of losses", [self._found[key].kind for key in new])

    def _by_sums(self, key: int, loss: Any, specs: Any) -> Finding | None:
        """What is found if the sums inside the loss are those of all samples; None if that is not right."""
        sums = BatchSums(f"the loss {_name(loss)!r}")
        finding = _tried(self._model, loss, specs, LossKinds(by_sums={key: sums}))
        if finding.kind is not Kind.MEAN or not sums.settle():
            return None
        self._kinds.by_sums[key] = sums
        runtime.logger.info("the loss %r is made of sums over samples: ranks add up each of them", _name(loss))
        return finding

    def _trace(self, batch_spec: Any) -> None:
        """Records the calls of losses that were built before this trial, in a graph that is thrown away."""
        if self._was_traced or not adapter.loss_hooks(self._model, self._recorded):
            return
        self._was_traced = True

        def forward(batch: Any) -> None:
            x, y, sample_weight = adapter.keras.utils.unpack_x_y_sample_weight(batch)
            self._model.compute_loss(x=x, y=y, y_pred=self._model(x, training=False), sample_weight=sample_weight)

        with self.recording():
            tf.function(forward, autograph=False).get_concrete_function(batch_spec)

    def check(self, is_divided: bool, answer: Answer) -> None:
        """Refuses losses that couple samples, or treats them as the user asked.

        Args:
            is_divided: whether ranks have parts of the same batch.

        Raises:
            UnsupportedError: the user asked for nothing.
        """
        coupled = [key for key, finding in self._found.items() if finding.kind is Kind.COUPLED]
        if not coupled or not is_divided:
            return
        if answer.across_ranks:
            self._kinds.gathered.update(coupled)
            return
        self._verdict.refuse([self._said(key) for key in coupled], answer)

    def _said(self, key: int) -> str:
        """The sentence about a loss that couples samples, with the compared values."""
        finding, output = self._found[key], adapter.outputs_of_losses(self._model).get(key)
        of_output = "" if output is None else f" of the output {output!r}"
        return (
            f"the loss {_name(self._calls[key][0])!r}{of_output} couples the samples of a batch: of {PARTS.whole} made-up "
            f"samples it is {finding.whole:.4g}, and the mean of its values of {PARTS.first} and {PARTS.second} of them, "
            f"weighted by samples, is {finding.of_parts:.4g} ({finding.difference():.2g} % off)"
        )


def _spec(value: Any) -> Any:
    """The spec of a tensor; anything else is its own, of which no samples are made up."""
    try:
        return None if value is None else tf.type_spec_from_value(value)
    except TypeError:
        return value


def _tried(model: Any, loss: Any, specs: Any, kinds: LossKinds) -> Finding:
    """The worst that is found on several kinds of made-up samples. Most losses of Keras need no trial."""
    if adapter.is_computed_per_sample(loss, *specs[:2]):
        return Finding(Kind.MEAN)  # a reduction="sum" is known without a trial as well
    worst, reason = None, "it is zero or not finite on made-up samples"
    function = getattr(loss, "fn", loss)
    variables = [*adapter.metric_variables(model), *adapter.seed_variables(model), *trial.variables_in([loss, function])]
    with trial.leaving_no_trace(variables):
        for arguments in _made_up(specs):
            try:
                finding = _compare(kinds, loss, *arguments())
            except (context.RefusedInTrial, NotComparable) as error:
                return Finding(Kind.UNKNOWN, reason=str(error))
            except Exception as error:  # a loss may refuse made-up numbers in any way
                reason = f"{type(error).__name__} on made-up samples: {str(error).splitlines()[0] if str(error) else ''}"
                continue
            if finding.kind is Kind.UNKNOWN:
                continue
            if worst is not None and worst.kind is not finding.kind:
                finding.kind = Kind.COUPLED  # a mean of some samples and a sum of others is neither
            worst = finding
            if worst.kind is Kind.COUPLED:
                break
    return Finding(Kind.UNKNOWN, reason=reason) if worst is None else worst


def _compare(kinds: LossKinds, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> Finding:
    step = trial.TrialStep(kinds)
    scaled = losses.across_ranks(loss, step)

    def value(arguments: Any, weight: float) -> float:
        with step.computing(weight):
            return float(np.asarray(scaled(*tf.nest.map_structure(trial.tensor, arguments)), np.float64))

    arguments = (y_true, y_pred, sample_weight)
    whole, weights = value(arguments, 1.0), PARTS.weights()
    parts = [value(part, weight) for part, weight in zip(PARTS.of(arguments), weights, strict=True)]
    kind = trial.compared(np.array([whole]), [np.array([part]) for part in parts], weights, tolerance=_SAME_VALUE)
    if kind is Kind.COUPLED and abs(value(arguments, 1.0) - whole) > 1e-6 * abs(whole):
        raise NotComparable("it draws random numbers")
    return Finding(kind, whole, sum(w * p for w, p in zip(weights, parts, strict=True)))


# ------------------------------------------------------------------------------------------------------ made-up samples


def _made_up(specs: Any) -> Iterator[Callable[[], Any]]:
    """Functions that make samples up for a loss: predictions like probabilities, like the softmax of classes, and any numbers.

    The samples differ much from each other, and so do the two parts, so that coupling shows.
    """
    for predictions, labels in ((_between, _some_zero), (_normalised, _classes), (_any_number, _some_negative)):
        yield functools.partial(_arguments, specs, predictions, labels)


def _arguments(specs: Any, predictions: Callable[..., Any], labels: Callable[..., Any]) -> Any:
    trial.check_dense(specs)
    y_true, y_pred, sample_weight = specs
    random, shapes = np.random.default_rng(1), trial.Shapes(PARTS.whole, specs, may_shorten=True)
    lengths = [shapes.of(spec)[-1] for spec in tf.nest.flatten(y_pred) if spec is not None and spec.shape.rank > 1]
    classes = lengths[0] if lengths and lengths[0] > 1 else 2

    def made(spec: Any, make: Callable[..., Any]) -> Any:
        if spec is None:
            return None
        dtype, shape = trial.full_type(spec.dtype), shapes.of(spec)
        scale = np.linspace(0.05, 3.0, shape[0]).reshape(-1, *[1] * (len(shape) - 1)) if shape else np.ones(())
        return np.asarray(make(random, shape, scale, dtype, classes), dtype.as_numpy_dtype)

    return (
        tf.nest.map_structure(lambda spec: made(spec, labels), y_true),
        tf.nest.map_structure(lambda spec: made(spec, predictions), y_pred),
        tf.nest.map_structure(lambda spec: made(spec, _between), sample_weight),
    )


def _between(random: np.random.Generator, shape: Any, scale: Any, dtype: tf.DType, classes: int) -> Any:
    """Numbers between 0 and 1: near 1 of the first samples, near 0 of the last ones."""
    return 0.02 + 0.96 * random.random(shape, np.float32) ** (2 * scale)


def _normalised(random: np.random.Generator, shape: Any, scale: Any, dtype: tf.DType, classes: int) -> Any:
    """Numbers between 0 and 1 of which each row has the sum 1."""
    numbers = _between(random, shape, scale, dtype, classes)
    return numbers / numbers.sum(-1, keepdims=True) if len(shape) > 1 and shape[-1] > 1 else numbers


def _any_number(random: np.random.Generator, shape: Any, scale: Any, dtype: tf.DType, classes: int) -> Any:
    """Numbers of any sign, whose spread grows from sample to sample."""
    return random.normal(size=shape) * scale


def _some_zero(random: np.random.Generator, shape: Any, scale: Any, dtype: tf.DType, classes: int) -> Any:
    """Integers that are classes, or numbers between 0 and 1: of the first samples few are 0, of the last ones many."""
    numbers = random.random(shape) if dtype.is_floating else random.integers(0, classes, shape)
    return numbers * (random.random(shape) > 0.3 * scale)


def _classes(random: np.random.Generator, shape: Any, scale: Any, dtype: tf.DType, classes: int) -> Any:
    """Classes: one-hot where there is room for one number each, else 0 and 1: of the first samples few are 0."""
    if not dtype.is_floating:
        return random.integers(0, classes, shape)
    if len(shape) > 1 and shape[-1] == classes:
        return np.eye(classes)[random.integers(0, classes, shape[:-1])]
    return random.random(shape) > 0.3 * scale


def _some_negative(random: np.random.Generator, shape: Any, scale: Any, dtype: tf.DType, classes: int) -> Any:
    """Numbers of any sign, or -1, as some data mark what does not count."""
    numbers = _any_number(random, shape, scale, dtype, classes) if dtype.is_floating else random.integers(0, classes, shape)
    return np.where(random.random(shape) > 0.3 * scale, numbers, -1)


def _name(loss: Any) -> str:
    """The name of a loss, as its user knows it."""
    return str(getattr(loss, "name", None) or type(loss).__name__)
