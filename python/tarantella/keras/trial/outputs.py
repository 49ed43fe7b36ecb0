"""Whether a model's output for a sample depends on the other samples of its batch, and the layer where that begins.

What normalises by a batch in training alone couples samples by design, as BatchNormalization does: it is neutral in a trial. A
step of the user's own is tried as a whole (`own_step`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step.patch import patched
from tarantella.keras.trial.comparison import TOLERANCE, Kind, NotComparable, difference_of_rows
from tarantella.keras.trial.parts import Parts
from tarantella.keras.trial.record import Record, recorded
from tarantella.keras.trial.run import Runs


def difference(parts: Parts, whole: Sequence[Any], part_values: Sequence[Sequence[Any]]) -> float:
    """The largest difference between outputs and those of the parts. Raises NotComparable if these are others."""
    flat = [tf.nest.flatten(list(outputs)) for outputs in (whole, *part_values)]
    if len({len(outputs) for outputs in flat}) != 1:
        raise NotComparable("it gives not as many outputs for any samples")
    return max((_tensor_difference(parts, *same) for same in zip(*flat, strict=True)), default=0.0)


def _tensor_difference(parts: Parts, whole: Any, *part_values: Any) -> float:
    if isinstance(whole, tf.RaggedTensor):
        if not all(isinstance(part, tf.RaggedTensor) for part in part_values):
            raise NotComparable("it is ragged for some samples only")
        together = tf.concat(part_values, 0)
        if whole.row_lengths().numpy().tolist() != together.row_lengths().numpy().tolist():
            return float("inf")
        width = int(tf.reduce_max(whole.row_lengths())) if whole.nrows() else 0
        shape = [None, width, *[None] * (whole.shape.rank - 2)]
        whole, part_values = whole.to_tensor(shape=shape), tuple(part.to_tensor(shape=shape) for part in part_values)
    if isinstance(whole, tf.SparseTensor):
        whole, part_values = tf.sparse.to_dense(whole), tuple(map(tf.sparse.to_dense, part_values))
    return difference_of_rows(whole, part_values, parts.sizes)


def kind_of(parts: Parts, whole: Record, part_records: Sequence[Record], again: Callable[[], Record]) -> tuple[Kind, float]:
    """How the model's outputs are made of those of the parts, and how much they differ.

    Args:
        again: runs the whole once more.
    """
    apart = difference(parts, whole.outputs, [part.outputs for part in part_records])
    if apart <= TOLERANCE:
        return Kind.MEAN, apart
    alone = parts._replace(parts=(parts.whole,), sizes=(parts.samples,))
    if difference(alone, whole.outputs, [again().outputs]) > 1e-6:
        raise NotComparable("it draws random numbers")
    return Kind.COUPLED, apart


def sentence(model: Any, parts: Parts, apart: float, where_run: str, new_runs: Callable[[], Runs]) -> str:
    """Says that the outputs for a sample depend on other samples, and from which layer on.

    Args:
        apart: how much they differ.
        where_run: ``"training"``, or the like.
        new_runs: makes runs of the step whose outputs do.
    """
    first = _where(model, parts, new_runs)
    by = "in size" if apart == float("inf") else f"by {100 * apart:.2g} %"
    return (
        f"the output of {type(model).__name__} {model.name!r} for a sample depends on the other samples of its batch"
        + (f", from {first} on" if first else "")
        + f": of {parts.samples} samples of the first batch in {where_run} it differs {by} from that of {parts.sizes[0]} and "
        f"{parts.sizes[1]} of them"
    )


# ------------------------------------------------------------------------------------------------- the layer that couples


def _where(model: Any, parts: Parts, new_runs: Callable[[], Runs]) -> str:
    """The first layer whose output for a sample depends on the other samples, as words; empty if no layer tells."""
    noted: list[tuple[Any, Any]] = []  # each call of a layer, in the order in which calls end: the layer, and what it gave

    def note(layer: Any) -> Callable[[Any], None]:
        return lambda outputs: noted.append((layer, tf.nest.flatten(outputs)))

    def noted_in_run() -> list[tuple[Any, Any]]:
        found = noted.copy()
        noted.clear()
        return found

    layers = adapter.layers_with_calls(model)
    with patched(lambda: [(layer, "call", recorded(layer.call, result=note(layer))) for layer in layers if layer is not model]):
        runs = new_runs()
        runs.layer_outputs = noted_in_run
        whole_record, records = runs.records(parts)
    whole, *part_values = (record.layer_outputs for record in (whole_record, *records))
    calls = [Counter(id(layer) for layer, _ in record) for record in (whole, *part_values)]
    for layer, outputs in whole:
        if any(counts[id(layer)] != 1 for counts in calls):
            continue  # such as a layer that is called for each step of a sequence
        same = [next(found for one, found in record if one is layer) for record in part_values]
        try:
            if difference(parts, outputs, same) > TOLERANCE:
                return f"the layer {layer.name!r} ({type(layer).__name__})"
        except NotComparable:
            continue  # such as a layer that makes a table of weights
    return ""
