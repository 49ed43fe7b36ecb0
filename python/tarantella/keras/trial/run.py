"""Runs of a model's step on a few samples, and what they gave, without an update.

What depends on a length that is not known before the data is there shows in a graph alone. So a step of Keras' own is traced
once, as for data of the dataset's shapes, if such a length is not known. All else runs eagerly, which takes half the time, and
so do steps of the user's own, legacy Keras, and models with ``run_eagerly=True``.

The gradients take most of a step's time. So a run can look at the values that the step differentiates instead: how the value of
a batch is made of those of its parts, its gradients are made of theirs as well.
"""

import functools
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.adapter.common.building import any_batch_size
from tarantella.keras.lengths.agreement import WholeBatch
from tarantella.keras.step import batch_sums, noise, tapes
from tarantella.keras.step.losses import LossKinds
from tarantella.keras.step.patch import Attribute, patched
from tarantella.keras.trial import kept_state
from tarantella.keras.trial.comparison import NotComparable
from tarantella.keras.trial.parts import Parts
from tarantella.keras.trial.record import NotTaken, Record, as_array, recorders, total
from tarantella.keras.trial.trial_step import TrialStep


def as_they_are(_record: Record, _whole_record: Record | None) -> AbstractContextManager[None]:
    """The context in which tapes give their gradients, and nothing is noted."""
    return nullcontext()


def values_in(record: Record, _whole_record: Record | None) -> AbstractContextManager[None]:
    """The context in which tapes note the values that variables have gradients of, and give `NotTaken` for these."""

    def take(own: Callable[[], Any], target: Any, variables: list[Any]) -> list[Any]:
        record.values.append(total(target))
        return [NotTaken(len(record.values) - 1) for _ in variables]

    return tapes.replaced(take)


def gradients_in(record: Record, whole_record: Record | None) -> AbstractContextManager[None]:
    """The context in which the gradients of variables that tapes take are noted.

    Args:
        whole_record: a record of the whole batch. The step gets the gradients there in the place of those of its part.
    """

    def take(own: Callable[[], Any], target: Any, variables: list[Any]) -> list[Any]:
        found: list[Any] = own()
        begin = len(record.taken)
        record.taken.extend((None if g is None else as_array(g), v) for g, v in zip(found, variables, strict=True))
        record.tensors.extend(found)
        record.draws = noise.number_of_draws()
        if whole_record is None:
            return found
        if [id(v) for _, v in whole_record.taken[begin : len(record.taken)]] != [id(v) for v in variables]:
            raise NotComparable("it does not take the same gradients for any samples")
        whole_gradients = whole_record.tensors[begin : len(record.tensors)]
        return [tapes.with_gradient_of(*pair) for pair in zip(found, whole_gradients, strict=True)]

    return tapes.replaced(take)


def _run_step(tried: "Tried", name: str, batch: Any, step: TrialStep, in_tapes: Callable[[Record], Any]) -> Record:
    """Runs the step of the plain model on these samples, or traces it, without an update."""
    model, record, own = tried.model, Record(), step.loss_kinds.own_by_sums.get(name)
    with (
        patched(lambda: _sums_of_batch(model, name, step)),
        patched(lambda: [*recorders(model, record, step), *neutral(model)]),
        in_tapes(record),
        batch_sums.in_own_step(model, name, step, own),
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
    """The model's loss or call with sums of the whole batch, where it needs them."""
    kinds = step.loss_kinds
    for sums in (kinds.own_by_sums.get(name), kinds.added_by_sums.get(name == "train_step")):
        if sums is not None and sums.method != name:
            yield from batch_sums.hooks(model, sums.method, functools.partial(_itself, sums), step)


def _itself(value: Any) -> Any:
    return value


class Tried(NamedTuple):
    model: Any
    kinds: LossKinds
    """What is known of its losses."""
    restore: Callable[[], None]
    """Gives what runs changed its values from before: a table of codes, for example, is another after a step."""
    kept: Sequence[Any] = ()
    """What a step may keep for the next one (`moving_statistics.kept`)."""


class PartsFail(NotComparable):
    """A step can be run on some samples, and not on parts of them; the text is a message."""


InTapes = Callable[[Record, Record | None], AbstractContextManager[None]]
"""The context of what tapes give in a run, of its record, and of that of the whole if it is the run of a part."""


class Runs:
    """Runs of a step on some samples and on parts of them.

    Args:
        spec: of the batches that the step will get; None: it is run eagerly.
        in_tapes: what its tapes give. By default the values are noted that it differentiates.
        gathered: ids of losses that parts compute from all samples.
    """

    def __init__(
        self, tried: Tried, name: str, spec: Any = None, in_tapes: InTapes = values_in, gathered: Container[int] = ()
    ) -> None:
        self._tried, self._name, self._in_tapes = tried, name, in_tapes
        self._step, self._lengths = TrialStep(tried.kinds), WholeBatch()
        self._gathered = gathered
        self.layer_outputs: Callable[[], list[tuple[Any, Any]]] = list
        """Gives what else was noted in a run: the outputs of layers."""
        is_eager = spec is None or adapter.runs_eagerly(tried.model) or _is_same_eagerly(tried.model, spec)
        self._spec = None if is_eager else tf.nest.map_structure(any_batch_size, spec)
        self._traces: dict[bool, tuple[Any, list[Record]]] = {}

    def records(self, parts: Parts) -> tuple[Record, list[Record]]:
        """The records of the whole, and of its parts.

        Raises:
            PartsFail: the parts fail. Any other error is that of the step.
        """
        whole = self.whole(parts.whole)
        try:
            return whole, [self._record(*part, whole) for part in zip(parts.parts, parts.weights, strict=True)]
        except (context.RefusedInTrial, NotComparable):
            raise
        except Exception as error:
            sizes = f"{parts.sizes[0]} or {parts.sizes[1]}"
            raise PartsFail(
                f"{self._name} can be run on {parts.samples} samples of the first batch, and not on {sizes} of them "
                f"({first_line(error)}). Each rank gets its part of a batch along the first axis of its tensors: if this is no "
                "axis of samples, use fit(..., tnt_distribute_dataset=False)"
            ) from error

    def whole(self, batch: Any) -> Record:
        return self._record(batch, 1.0, None)

    def _record(self, batch: Any, weight: float, whole: Record | None) -> Record:
        self._tried.restore()
        record = self._run_or_trace(batch, weight, whole)
        record.kept = kept_state.values(self._tried.kept)
        return record

    def _run_or_trace(self, batch: Any, weight: float, whole: Record | None) -> Record:
        whole_divisors = None if whole is None else whole.divisors
        if self._spec is None:
            return self._run(batch, weight, whole_divisors, whole)
        key = bool(whole_divisors)  # without divisors one trace serves for the whole and its parts
        if key not in self._traces:
            records: list[Record] = []

            def traced(tensors: Any, weight: Any, whole_divisors: Any) -> list[Any]:
                records.append(self._run(_packed(self._spec, tensors), weight, whole_divisors if key else None, None))
                return records[-1].in_graph()

            number, divisors = tf.TensorSpec([], tf.float64), [tf.TensorSpec([], tf.float64)] * len(whole_divisors or [])
            signature = [_tensors(self._spec), number, divisors]
            function = tf.function(traced, input_signature=signature, autograph=False, jit_compile=False)
            self._traces[key] = function.get_concrete_function(), records
        function, records = self._traces[key]
        values = function(_tensors(batch), tf.constant(weight, tf.float64), list(whole_divisors or []))
        return records[-1].with_values(values)

    def _run(self, batch: Any, weight: Any, whole_divisors: Any, whole: Record | None) -> Record:
        record = self._computed(batch, weight, whole_divisors, whole)
        if context.graph() is not None:
            record.outputs = [outputs for outputs in record.outputs if _is_here(outputs)]
            record.added = {key: value for key, value in record.added.items() if _is_here(value)}
        record.layer_outputs = [(layer, outputs) for layer, outputs in self.layer_outputs() if _is_here(outputs)]
        return record

    def _computed(self, batch: Any, weight: Any, whole_divisors: Any, whole: Record | None) -> Record:
        given = {} if whole is None else {key: value for key, value in whole.given.items() if key[0] in self._gathered}
        with self._lengths.run(), self._step.computing(weight, whole_divisors, given):
            return _run_step(self._tried, self._name, batch, self._step, lambda record: self._in_tapes(record, whole))


def _is_same_eagerly(model: Any, spec: Any) -> bool:
    """Whether all lengths are known, and the model has no layer that runs step by step, which takes long eagerly."""
    known = (isinstance(one, tf.TensorSpec) and one.shape.rank and None not in one.shape[1:] for one in _tensors(spec))
    return all(known) and not any(isinstance(layer, adapter.keras.layers.RNN) for layer in adapter.layers_of(model))


def first_line(error: Exception) -> str:
    """An error, in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


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


# --------------------------------------------------------------------------------------------------- what is put aside in a run


_OFF = {"rate": 0.0, "dropout": 0.0, "recurrent_dropout": 0.0, "stddev": 0.0}  # what makes layers draw noise


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
