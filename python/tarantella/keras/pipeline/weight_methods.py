"""The methods of `tnt.Model` that read and write weights, for a model of which each rank holds some stages."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from tarantella.keras import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tarantella.keras.pipeline.weights import Holdings


class WeightMethods:
    """`get_weights`, `set_weights` and `load_weights`.

    Args:
        model: the Keras model.
        held: gives which rank holds what; None if all weights are on all ranks.
    """

    def __init__(self, model: Any, held: Callable[[], Holdings | None]) -> None:
        self._model, self._held = model, held

    def all(self) -> dict[str, Callable[..., Any]]:
        """The methods by their names."""
        return {method.__name__: method for method in (self.get_weights, self.set_weights, self.load_weights)}

    def get_weights(self) -> list[Any]:
        """Like Keras' `get_weights`: all weights, on every rank. Collective."""
        holdings = self._held()
        return list(self._model.get_weights()) if holdings is None else [holdings.value(v) for v in self._model.weights]

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Like Keras' `set_weights`: each rank takes those of its stages, from the list that it was given."""
        with self._assigning_own():
            self._model.set_weights(weights)

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Like Keras' `load_weights`: every rank reads the file, and keeps the weights of its stages. Collective."""
        with self._assigning_own():
            return files.read(lambda: self._model.load_weights(*args, **kwargs))

    def _assigning_own(self) -> AbstractContextManager[None]:
        """The context in which the weights that this rank holds take values."""
        holdings = self._held()
        return nullcontext() if holdings is None else holdings.assigning_own()
