"""The functions into which Keras traces a model's steps, with hooks and without, and the methods of Keras that call them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tarantella import generations
from tarantella.keras import adapter

_UNTRACED = (None, None, None)


class StandIn(functools.partial):  # type: ignore[type-arg]
    """A function in the place of Keras', which is of no generation: it makes anew what it calls."""


class TracedFunctions:
    """Those that the model does not have at the moment: with hooks, or without while hooks are installed.

    What was traced with hooks has the ranks of its generation in it: how many they are, and which of them this is. It is traced
    again when the job has lost ranks or got new ones, whatever has noticed that.

    Args:
        on_renewal: is called when Keras was asked to make functions anew.
    """

    def __init__(self, model: Any, on_renewal: Callable[[], None]) -> None:
        self._model, self._on_renewal = model, on_renewal
        self._kept: tuple[Any, ...] = _UNTRACED
        self._generation = generations.joined()  # of those with hooks
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

    def swap(self, with_hooks: bool) -> None:
        """Exchanges the model's functions with the others, but for those that Keras was asked to make anew.

        with_hooks: whether the model gets those with hooks.
        """
        renewed = adapter.renewed_functions(self._model)
        if renewed:
            self._on_renewal()
        kept = tuple(None if i in renewed else function for i, function in enumerate(self._kept))
        if with_hooks:
            self._kept = adapter.swap_functions(self._model, self._of_now(kept))
        else:
            self._kept = self._of_now(adapter.swap_functions(self._model, kept))
        self._generation = generations.joined()

    def _of_now(self, functions: tuple[Any, ...]) -> tuple[Any, ...]:
        """Functions with hooks, but None for those of an earlier generation."""
        if self._generation == generations.joined():
            return functions
        return tuple(function if isinstance(function, StandIn) else None for function in functions)
