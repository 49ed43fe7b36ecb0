"""Losses that are made of sums over the samples of a batch, such as a sum over weights, divided by the sum of the weights.

Such a loss is no mean over samples, and yet ranks can compute it: of the same sums over all ranks. So each sum and each mean
along the first axis that the loss takes is made one over all ranks, forward and backward. Every rank then has the loss of the
batch, whatever the loss makes of the sums.

A trial finds out whether that is right. The loss of a batch's parts is computed with the sums of the whole, which must give the
loss of the whole; and each of the sums of the whole must be the sum of those of the parts, or their mean weighted by samples,
which a sum over a model's weights is as well. A loss that couples samples in another way, as by a maximum, stays refused.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.adapter.reductions import reductions_replaced
from tarantella.keras.reduction import collectives
from tarantella.keras.step import tapes
from tarantella.keras.step.patch import Attribute, patched

_ROUNDING = 2e-5  # relative, of sums in float32; less than what makes a loss one that couples samples


class Place(Enum):
    """How the value at one place in a computation is made of those of a batch's parts."""

    # in the order of preference where several are right: a ratio is a mean of samples that have equally many elements
    SUM = "the sum of the parts' sums"
    RATIO = "the sum of the parts' elements, divided by their number"
    MEAN = "the mean of the parts' values, weighted by samples; also what is the same for any samples"


class PartOfBatch(Protocol):
    """The facts of a step that are needed here."""

    number_of_run: int
    """Counts the runs of a trial."""

    def weight(self) -> tf.Tensor:
        """The part that these samples are of the batch."""

    @property
    def weight_of_gradients(self) -> Callable[[], tf.Tensor]:
        """Gives the factor with which the gradients of these samples are added to those of the others."""

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The sum over the batch's parts of a number, such as what the loss of each divides by."""

    def counts_alone(self) -> bool:
        """Whether these samples are a batch of their own."""


class _Call:
    """The values of one call in a run of a trial: at each place the operation, its value and number of elements."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        """Of the samples of that run."""
        self.values: list[tuple[str, Any, int]] = []


class BatchSums:
    """The sums and means along the first axis in one computation.

    Before `settle` the computation is tried, eagerly: of a whole batch, then of its parts. Afterwards it runs on ranks.

    Args:
        what: the computation, as the subject of a sentence.
        method: the method of a model that makes it; empty if it is a loss.
    """

    def __init__(self, what: str, method: str = "") -> None:
        self.method = method
        self._what = what
        self._runs: dict[int, list[_Call]] = {}
        self._places: list[tuple[str, Place]] | None = None
        self._is_apart = False

    def possible(self) -> list[tuple[str, tuple[str, ...]]] | None:
        """How ranks may bring the values at each place together: the operation, and the names of `Place`; None if they cannot.

        What is possible for all samples of one rank may not be for those of another.
        """
        groups: list[list[list[_Call]]] = []
        for run in self._runs.values():
            if run[0].weight == 1.0:
                groups.append([])
            if groups:
                groups[-1].append(run)
        complete = [group for group in groups if abs(sum(run[0].weight for run in group[1:]) - 1) < 1e-6]
        if any(len({len(run) for run in group}) != 1 for group in complete):
            return None
        calls = [same for group in complete for same in zip(*group, strict=True)]
        shapes = {tuple(operation for operation, _, _ in call.values) for same in calls for call in same}
        if len(shapes) != 1 or not (operations := shapes.pop()):
            return None
        found = []
        for i, operation in enumerate(operations):
            kinds = [_kinds([call.weight for call in same[1:]], *[call.values[i] for call in same]) for same in calls]
            common = tuple(place.name for place in Place if all(place in kind for kind in kinds))
            if not common:
                return None
            found.append((operation, common))
        return found

    def settle(self, places: Sequence[tuple[str, str]]) -> None:
        """Ends the trial. places: the operation at each, and the name of the `Place` that all ranks take."""
        self._places = [(operation, Place[name]) for operation, name in places]

    @contextmanager
    def over_ranks(self, step: PartOfBatch) -> Iterator[None]:
        """In this context sums and means along the first axis are those of the samples of all ranks."""
        if step.counts_alone():
            yield
            return
        graph, number = context.graph(), iter(range(1 << 30))
        call = _Call(float(step.weight())) if self._places is None else None
        if call is not None:
            self._runs.setdefault(step.number_of_run, []).append(call)

        def replace(operation: str, x: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
            if self._is_apart or not (output.dtype.is_floating or output.dtype.is_integer):
                return output
            if context.graph() is not graph:  # inside a function of the user's, which keeps its trace for other calls
                return output
            if call is not None:
                return _tried(call, operation, x, output, step)
            return self._total(next(number), operation, x, output, step)

        with reductions_replaced(replace):
            yield
        if self._places is not None and next(number) != len(self._places):
            raise self._changed()

    @contextmanager
    def inside(self, model: Any, step: PartOfBatch) -> Iterator[None]:
        """The context `over_ranks` of a method of the model.

        Some sums stay those of the rank's samples: in metrics, which others bring together after the last batch; in
        BatchNormalization, about which others decide; and what gradients and optimizers add up.
        """
        at_tapes = tapes.replaced(lambda own, *_: self._apart(own)())
        with self.over_ranks(step), patched(lambda: self._kept_apart(model)), at_tapes:
            yield

    def _kept_apart(self, model: Any) -> Iterator[Attribute]:
        if self.method in ("train_step", "test_step"):  # it may hand compiled losses what it has made of sums itself
            yield from adapter.loss_hooks(model, self._apart)
        for metric in model.metrics:
            yield metric, "update_state", self._apart(metric.update_state)
            yield metric, "result", self._apart(metric.result)
        for optimizer in adapter.held_optimizers(model):
            for hook in (adapter.optimizer_hook(), *adapter.overridden_hooks(optimizer)):
                yield optimizer, hook, self._apart(getattr(optimizer, hook))
        for layer in adapter.layers_of(model):
            if isinstance(layer, adapter.keras.layers.BatchNormalization):
                yield layer, "call", self._apart(layer.call)

    def _apart(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def apart(*args: Any, **kwargs: Any) -> Any:
            before, self._is_apart = self._is_apart, True
            try:
                return original(*args, **kwargs)
            finally:
                self._is_apart = before

        return apart

    def _total(self, number: int, operation: str, x: tf.Tensor, output: tf.Tensor, step: PartOfBatch) -> tf.Tensor:
        assert self._places is not None
        if number >= len(self._places) or self._places[number][0] != operation:
            raise self._changed()
        place = self._places[number][1]
        if place is Place.SUM:
            return _summed(output, step, weighted=False)
        if place is Place.MEAN:
            return _summed(output, step, weighted=True)
        elements = tf.size(x, tf.int64) // tf.maximum(tf.size(output, tf.int64), 1)
        own = tf.where(elements > 0, output * tf.cast(elements, output.dtype), tf.zeros_like(output))
        return _summed(own, step, weighted=False) / tf.cast(_summed(elements, step, weighted=False), output.dtype)

    def _changed(self) -> Exception:
        error: Exception = UnsupportedError(
            f"{self._what} takes other sums over samples in the step than in its trial, and ranks cannot make them sums over "
            "all ranks: let it take the same in each call, outside of tf.cond, of functions compiled by XLA and of "
            "BatchNormalization, or use tnt.all_gather inside of it"
        )
        return error


def _tried(call: _Call, operation: str, x: tf.Tensor, output: tf.Tensor, step: PartOfBatch) -> tf.Tensor:
    """Notes the value, and gives that of the whole batch."""
    elements = int(tf.size(x)) // max(int(tf.size(output)), 1)
    call.values.append((operation, np.asarray(output), elements))
    whole = step.divisor_of_all(tf.stop_gradient(output))
    if whole.shape != output.shape:
        return output
    return whole + _own_gradient(output, step.weight()) if output.dtype.is_floating else whole


def _own_gradient(x: tf.Tensor, weight: tf.Tensor) -> tf.Tensor:
    """Zero, with the gradient that a sum over all parts gives to this one, where the others have the same upstream gradient."""
    return (x - tf.stop_gradient(x)) / tf.cast(weight, x.dtype)


def _kinds(weights: list[float], whole: tuple[str, Any, int], *parts: tuple[str, Any, int]) -> list[Place]:
    """All that the values may be: zeros, for example, are a sum and a mean."""
    operation, value, elements = whole
    values = [np.nan_to_num(np.asarray(part[1], np.float64)) for part in parts]
    if any(part.shape != value.shape for part in values):
        return []
    floating = np.issubdtype(value.dtype, np.floating) or value.dtype.kind == "V"  # bfloat16
    counts = [part[2] for part in parts]

    def same(expected: Any, sizes: Any) -> bool:
        return bool(np.all(np.abs(np.asarray(value, np.float64) - expected) <= _ROUNDING * sizes + 1e-30))

    sizes = sum(np.abs(part) for part in values) + np.abs(np.asarray(value, np.float64))
    weighted_mean = sum(count * part for count, part in zip(counts, values, strict=True)) / max(elements, 1)
    tests = {
        Place.SUM: operation == "Sum" and same(sum(values), sizes),
        Place.RATIO: operation == "Mean" and sum(counts) == elements and same(weighted_mean, sizes),
        Place.MEAN: floating and same(sum(w * part for w, part in zip(weights, values, strict=True)), sizes),
    }
    return [place for place, right in tests.items() if right]


def _summed(x: tf.Tensor, step: PartOfBatch, weighted: bool) -> tf.Tensor:
    """The sum over ranks of x, or of each rank's weight * x. A rank without samples counts as nothing.

    The gradients of ranks are added up with their weights later. So what comes back from all ranks, each with its weight, is
    divided by this rank's.
    """
    weight = step.weight()

    def counted(value: tf.Tensor, factor: bool) -> tf.Tensor:
        number = value * tf.cast(weight, value.dtype) if factor else value
        return tf.where(weight > 0, number, tf.zeros_like(number))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def total(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            if context.in_trial():  # the other parts have the same upstream gradient
                return upstream if weighted else upstream / tf.cast(weight, upstream.dtype)
            factor = tf.cast(step.weight_of_gradients(), upstream.dtype)
            back = collectives.total(tf.where(factor > 0, upstream * factor, tf.zeros_like(upstream)))
            return tf.math.divide_no_nan(counted(back, weighted), factor)

        return step.divisor_of_all(counted(x, weighted)), gradient

    if not x.dtype.is_floating:
        return step.divisor_of_all(counted(x, weighted))
    wide = tf.float32 if x.dtype.size < 4 else x.dtype
    return tf.cast(total(tf.cast(x, wide)), x.dtype)


# ------------------------------------------------------------------------------------------- a method of the user's own


def in_own_step(model: Any, name: str, step: PartOfBatch, sums: BatchSums | None) -> AbstractContextManager[None]:
    """The context of a step of this name, in which sums are those of all ranks if the step itself takes them."""
    return nullcontext() if sums is None or sums.method != name else sums.inside(model, step)


def hooks(model: Any, method: str, choose: Callable[[], BatchSums | None], step: PartOfBatch) -> Iterator[Attribute]:
    """The method of the model, ``"compute_loss"`` or ``"call"``, with sums over all ranks.

    choose: gives those of the step that runs; None: its sums stay the rank's own.
    """
    original = getattr(model, method)

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def over_ranks(*args: Any, **kwargs: Any) -> Any:
        sums = choose()
        with nullcontext() if sums is None else sums.inside(model, step):
            return original(*args, **kwargs)

    yield model, method, over_ranks
