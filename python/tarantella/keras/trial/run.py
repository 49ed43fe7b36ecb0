"""Runs of a model's step on a few samples, and what they gave, without an update.

A step of Keras' own is traced once, as for data of the dataset's shapes: what depends on a length that is not known before the
data is there shows in a graph alone. Steps of the user's own, legacy Keras and models with ``run_eagerly=True`` run eagerly.

The gradients take most of a step's time. So a run can look at the values that the step differentiates instead: how the value of
a batch is made of those of its parts, its gradients are made of theirs as well.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.adapter.common.building import any_batch_size
from tarantella.keras.lengths.agreement import WholeBatch
from tarantella.keras.step import batch_sums
from tarantella.keras.step.patch import patched
from tarantella.keras.trial import kept_state
from tarantella.keras.trial.in_tapes import values_in
from tarantella.keras.trial.neutral import neutral
from tarantella.keras.trial.record import Record, recorders
from tarantella.keras.trial.trial_step import TrialStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tarantella.keras.step.losses import LossKinds


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
        step.computing(weight, of_whole),
        _sums_of_batch(model, name, step),
        patched(lambda: [*recorders(model, record, step), *neutral(model)]),
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


@contextmanager
def _sums_of_batch(model: Any, name: str, step: TrialStep) -> Iterator[None]:
    """The context in which sums are those of the whole batch, where the step, its loss or its layers need them."""
    kinds = step.loss_kinds
    own, added = kinds.own_by_sums.get(name), kinds.added_by_sums.get(name == "train_step")
    methods = [sums for sums in (own, added) if sums is not None and sums.method != name]
    attributes = [
        hook for sums in methods for hook in batch_sums.hooks(model, sums.method, functools.partial(_itself, sums), step)
    ]
    with patched(lambda: attributes), batch_sums.in_own_step(model, name, step, own):
        yield


def _itself(value: Any) -> Any:
    return value


class Runs:
    """Runs of a step of Keras' own, of which only the values are looked at that it differentiates.

    Args:
        spec: of the batches that the step will get; None: it is run eagerly.
        kinds: what is known of losses.
        restore: gives what runs changed its values from before: a table of codes, for example, is another after a step.
    """

    def __init__(self, model: Any, name: str, spec: Any, kinds: LossKinds, restore: Callable[[], None]) -> None:
        self._model, self._name, self._restore = model, name, restore
        self._step, self._lengths = TrialStep(kinds), WholeBatch()
        self.also: Callable[[], list[tuple[Any, Any]]] = list
        """Gives what else was noted in a run: the outputs of layers."""
        self._spec = None if spec is None or adapter.runs_eagerly(model) else tf.nest.map_structure(any_batch_size, spec)
        self._traces: dict[bool, tuple[Any, list[Record]]] = {}

    def whole(self, batch: Any) -> Record:
        """The record of the whole."""
        return self._record(batch, 1.0, None)

    def part(self, batch: Any, weight: float, whole: Record) -> Record:
        """The record of a part of it."""
        return self._record(batch, weight, whole.divisors)

    def _record(self, batch: Any, weight: float, of_whole: Any) -> Record:
        self._restore()
        record = self._run_or_trace(batch, weight, of_whole)
        record.kept = kept_state.values(self._model) if self._name == "train_step" else []
        return record

    def _run_or_trace(self, batch: Any, weight: float, of_whole: Any) -> Record:
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
            self._traces[key] = function.get_concrete_function(), records
        function, records = self._traces[key]
        values = function(_tensors(batch), tf.constant(weight, tf.float64), list(of_whole or []))
        return records[-1].with_values(values)

    def _run(self, batch: Any, weight: Any, of_whole: Any) -> Record:
        record = self._computed(batch, weight, of_whole)
        if context.graph() is not None:
            record.outputs = [outputs for outputs in record.outputs if _is_here(outputs)]
            record.added = {key: value for key, value in record.added.items() if _is_here(value)}
        record.also = [(layer, outputs) for layer, outputs in self.also() if _is_here(outputs)]
        return record

    def _computed(self, batch: Any, weight: Any, of_whole: Any) -> Record:
        with self._lengths.run():
            return run_step(self._model, self._name, batch, self._step, weight, values_in, of_whole)


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
