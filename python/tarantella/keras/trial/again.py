"""When a batch is tried again: data may change from epoch to epoch, and a trial takes time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella import collectives

PART = 0.01
"""The part of the time of a training that later trials may take."""


class Again:
    """The time that trials took, and the shapes of the batches that were tried."""

    def __init__(self) -> None:
        self._begin = 0.0
        self._last = 0.0
        self._later = 0.0
        self._shapes: set[Any] = set()

    @contextmanager
    def trying(self, batch: Any) -> Iterator[None]:
        """In this context this batch is tried."""
        begin = time.monotonic()
        self._shapes.add(_shape(batch))
        try:
            yield
        finally:
            self._last = time.monotonic() - begin
            if self._begin:
                self._later += self._last
            self._begin = self._begin or time.monotonic()

    def is_worth(self, batch: Any) -> bool:
        """Whether a batch is to be tried again, on all ranks or none. Collective.

        It is if there is time, and at once if it has a shape that no batch had before.
        """
        is_new = _shape(batch) not in self._shapes
        has_time = self._later + self._last <= PART * (time.monotonic() - self._begin)
        new, no_time = collectives.all_reduce([int(is_new), int(not has_time)], op="max").tolist()
        return not no_time or bool(new and self._later <= self._last)


def _shape(batch: Any) -> Any:
    tensors = [tensor for tensor in tf.nest.flatten(batch) if tensor is not None]
    return tuple((tensor.dtype.name, *tensor.shape[1:]) for tensor in tensors)
