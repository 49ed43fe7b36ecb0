"""The functions into which Keras traces a model's steps, with hooks and without, and the methods of Keras that call them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tarantella.keras import adapter

_UNTRACED = (None, None, None)


class TracedFunctions:
    """Those that the model does not have at the moment: with hooks, or without while hooks are installed.

    Args:
        on_renewal: is called when Keras was asked to make functions anew.
    """

    def __init__(self, model: Any, on_renewal: Callable[[], None]) -> None:
        self._model, self._on_renewal = model, on_renewal
        self._kept: tuple[Any, ...] = _UNTRACED
        self._is_running = False  # a method of Keras, also while hooks are suspended in it
        self.are_on_other_data = False
        """Whether a method of Keras runs inside of another one, on data of its own."""
        adapter.watch_functions(model)

    @contextmanager
    def running(self) -> Iterator[None]:
        """A method of Keras runs in this context, perhaps inside of another one, as `evaluate` in a callback of `fit`."""
        before = self._is_running, self.are_on_other_data
        self._is_running, self.are_on_other_data = True, self._is_running
        try:
            yield
        finally:
            self._is_running, self.are_on_other_data = before

    def forget(self) -> None:
        """The steps are traced again."""
        self._kept = _UNTRACED

    def forget_generation(self) -> None:
        """The same, where the job has lost ranks. Inside of `fit`, whose own steps know of it, only `predict_step` is."""
        self._kept = (*self._kept[:2], None) if self._is_running else _UNTRACED

    def swap(self) -> None:
        """Exchanges the model's functions with the others, but for those that Keras was asked to make anew."""
        renewed = adapter.renewed_functions(self._model)
        if renewed:
            self._on_renewal()
        kept = tuple(None if i in renewed else function for i, function in enumerate(self._kept))
        self._kept = adapter.swap_functions(self._model, kept)
