"""How the losses given to `compile`, and those that layers add in Keras' own steps, are made of the losses of a batch's parts.

A loss that returns a sum is summed over ranks, or scaled in each step (`tarantella.keras.step.added_losses`). One that couples
the samples of a batch is computed from those of all ranks if it was given to `compile`, and else refused.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.trial.comparison import (
    SAME_VALUE,
    TOLERANCE,
    Kind,
    NotComparable,
    common_kind,
    compared,
    difference_of_rows,
)
from tarantella.keras.trial.parts import Parts
from tarantella.keras.trial.record import Record


def compiled_kinds(
    losses: Sequence[Any], parts: Parts, whole: Record, part_records: Sequence[Record], again: Callable[[], Record]
) -> dict[int, tuple[Kind, str]]:
    """The kind of each loss that was called, by its place, and what was compared, as words.

    again: runs the whole once more.
    """
    found = {}
    for place, loss in enumerate(losses):
        calls = [key for key in whole.losses if key[0] == id(loss)]
        if calls and not all(key in part.losses for key in calls for part in part_records):
            raise NotComparable("a loss is computed more often of all samples than of some")
        call_kinds = [_compared(parts, whole.losses[key], [part.losses[key] for part in part_records]) for key in calls]
        if call_kinds:
            kind = common_kind(kind for kind, _ in call_kinds)
            found[place] = kind, next((said for one, said in call_kinds if one is Kind.COUPLED), "")
    if any(kind is Kind.COUPLED for kind, _ in found.values()):
        repeated = again().losses
        if any(abs(float(repeated[key]) - float(value)) > 1e-6 * abs(float(value)) for key, value in whole.losses.items()):
            raise NotComparable("a loss draws random numbers")
    return found


def are_given_alike(loss: Any, parts: Parts, whole: Record, part_records: Sequence[Record]) -> bool:
    """Whether the loss is given the same rows for a sample in the whole and in its part, as far as rows can be compared."""
    given = [[one for called, one in record.loss_calls if called is loss] for record in (whole, *part_records)]
    tensors = [[t for t in tf.nest.flatten(one) if tf.is_tensor(t)] for one in given]
    if len({len(one) for one in tensors}) != 1:
        return False
    for same in zip(*tensors, strict=True):
        if not all(isinstance(tensor, tf.Tensor) and hasattr(tensor, "numpy") for tensor in same):
            continue  # in a graph: a step of Keras' own gives rows of the model, which were compared
        try:
            if difference_of_rows(same[0], same[1:], parts.sizes) > TOLERANCE:
                return False
        except NotComparable:  # it has rows of its own: `verdict.NO_ROWS`
            continue
    return True


def added_kinds(parts: Parts, whole: Record, part_records: Sequence[Record]) -> dict[tuple[int, int], tuple[Kind, str]]:
    """The kind of each loss that a layer added, by the layer's id and the number of its call, and what was compared."""
    if any(part.added.keys() != whole.added.keys() for part in part_records):
        raise NotComparable("not as many losses are added for any samples")
    return {
        key: _compared(parts, value, [part.added[key] for part in part_records], TOLERANCE)
        for key, value in whole.added.items()
    }


def _compared(parts: Parts, whole: Any, part_values: Sequence[Any], tolerance: float = SAME_VALUE) -> tuple[Kind, str]:
    return compared(whole, part_values, parts.weights, tolerance=tolerance), _numbers(parts, whole, part_values)


def _numbers(parts: Parts, whole: Any, part_values: Sequence[Any]) -> str:
    """The numbers that were compared, as words."""
    value, values = float(whole), [float(part) for part in part_values]
    mean = sum(weight * number for weight, number in zip(parts.weights, values, strict=True))
    off = 100 * abs(mean - value) / max(abs(value), abs(mean), 1e-30)
    return (
        f"of {parts.samples} samples of the first batch it is {value:.4g}, and the mean of its values of {parts.sizes[0]} and "
        f"{parts.sizes[1]} of them, weighted by samples, is {mean:.4g} ({off:.2g} % off)"
    )


def described(model: Any, loss: Any) -> str:
    """A loss, as the subject of a sentence."""
    output = adapter.outputs_of_losses(model).get(id(loss))
    name = str(getattr(loss, "name", None) or type(loss).__name__)
    return f"the loss {name!r}" + ("" if output is None else f" of the output {output!r}")
