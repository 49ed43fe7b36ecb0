"""The lengths of a whole batch, asked for by what computes with them and decided by the context of the run."""

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import context
from tarantella.keras.adapter.tensorflow import is_called_from

Combination: TypeAlias = Literal["max", "sum"]
"""How a length of a whole batch is made of those of its parts."""
Decide: TypeAlias = Callable[[tf.Tensor, Combination], tf.Tensor]
"""Gives the lengths of the whole batch, of those of the samples at hand: int64."""


@dataclass(frozen=True)
class _Context:
    """A context that was entered.

    Attributes:
        decide: None: the lengths are those of the samples at hand.
        graph: in which it was entered; None: eagerly.
        mark: a function has a trace of its own for each.
    """

    decide: Decide | None
    graph: Any
    mark: Hashable


class _ThreadContexts(threading.local):
    """The contexts of each thread: the threads that make batches pad them by their own samples."""

    def __init__(self) -> None:
        self.contexts: list[_Context] = []


_thread_contexts = _ThreadContexts()
_logged_places: set[str] = set()


@contextmanager
def entered(decide: Decide | None, mark: Hashable) -> Iterator[None]:
    """Context in which lengths are decided upon so."""
    _thread_contexts.contexts.append(_Context(decide, context.graph(), mark))
    try:
        yield
    finally:
        _thread_contexts.contexts.pop()


def is_open() -> bool:
    """Whether lengths are decided upon here, and not those of the samples at hand."""
    return _here() is not None


def trace_mark() -> tuple[str, Hashable] | None:
    """What a function that is traced here must have a trace of its own for."""
    here = _here()
    return None if here is None else ("lengths", here.mark)


def largest(own: tf.Tensor, what: str) -> tf.Tensor:
    """The largest of each of some lengths in the whole batch, of those of the samples at hand: a vector, int64.

    what: is padded to them, for the log.
    """
    return _batch_value(own, "max", what)


def total(own: tf.Tensor) -> tf.Tensor:
    """The number of samples of the whole batch, of that of those at hand: a scalar, int64."""
    return _batch_value(own, "sum")


def place() -> str:
    """Where in the model this is, for messages."""
    return tf.get_current_name_scope() or "the model"


def _batch_value(own: tf.Tensor, combination: Combination, what: str | None = None) -> tf.Tensor:
    here = _here()
    if here is None or here.decide is None:
        return own
    if what is not None and isinstance(here.mark, str) and place() not in _logged_places:
        _logged_places.add(place())
        runtime.logger.info("%s: %s of the whole batch: ranks agree on it in each step", place(), what)
    return tf.ensure_shape(here.decide(tf.cast(own, tf.int64), combination), own.shape)


def _here() -> _Context | None:
    """The context that decides here; None where the samples' own lengths count."""
    inside = _thread_contexts.contexts[-1] if _thread_contexts.contexts else None
    if inside is None or inside.decide is None or not is_called_from(context.graph(), inside.graph):
        return None
    return inside
