"""What the tapes of a step give in a run: its gradients, or no gradients, as these take most of a step's time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tarantella.keras.step import noise, tapes
from tarantella.keras.trial.comparison import NotComparable
from tarantella.keras.trial.record import NotTaken, Record, as_array, total


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
