"""Which layers and weights a training step trains: those that it did when it was traced first.

Keras looks at ``trainable`` where it traces a step, so that a callback which freezes layers changes nothing before the next
`compile`. After a loss of ranks the step is traced again, which must not change that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tarantella import generations
from tarantella.keras import adapter, context

Flags = list[tuple[Any, bool]]
"""Of layers, from the outermost, and then of weights."""


class Trainability:
    """That of a compiled model, in an elastic job."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._first: Flags | None = None

    def forget(self) -> None:
        """Keras was asked to trace steps anew."""
        self._first = None

    def kept(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A training step whose traces all train what the first one did."""
        if not generations.is_elastic():
            return step

        def train_step(element: Any) -> Any:
            if context.graph() is None:
                return step(element)
            with self._as_first():
                return step(element)

        return train_step

    @contextmanager
    def _as_first(self) -> Iterator[None]:
        now = self._flags()
        if self._first is None:
            self._first = now
        _set(self._first)
        try:
            yield
        finally:
            _set(now)

    def _flags(self) -> Flags:
        weights = [weight for weight in adapter.weights(self._model) if _is_settable(weight)]
        return [(one, bool(one.trainable)) for one in (*adapter.layers_of(self._model), *weights)]


def _set(flags: Flags) -> None:
    if any(one.trainable != flag for one, flag in flags):
        for one, flag in flags:  # a layer sets those of all that is in it, which follows
            one.trainable = flag


def _is_settable(weight: Any) -> bool:
    found = getattr(type(weight), "trainable", None)
    return isinstance(found, property) and found.fset is not None
