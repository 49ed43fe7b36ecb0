"""Whether an optimizer of the user's own updates each variable from its own gradient and state, tried on made-up numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step.patch import patched

_SHAPES = ((3, 2), (2,), (2, 2), (4,))
_STEPS = 3


def uncuttable_because(optimizer: Any) -> str | None:
    """Why variables cannot be updated on different ranks, in the middle of a sentence; None if they can."""
    why: str | None = adapter.unshardable_because(optimizer)
    return _couples_variables(optimizer) if why is None and not adapter.is_builtin(optimizer) else why


def _couples_variables(optimizer: Any) -> str | None:
    """Why variables cannot be updated on different ranks; None if they can.

    A copy of the optimizer updates a few variables, and two other copies update half of them each, as two ranks would. The
    variables are to be the same to the last bit.
    """
    try:
        together = _Copy(optimizer, range(len(_SHAPES)))
        halves = [_Copy(optimizer, range(begin, len(_SHAPES), 2)) for begin in range(2)]
        random = np.random.default_rng(1)
        for _ in range(_STEPS):
            grads = [random.normal(size=shape).astype(np.float32) for shape in _SHAPES]
            for one in (together, *halves):
                one.apply(grads)
            weights = [halves[i % 2].weights[i].numpy() for i in range(len(_SHAPES))]
            for half in halves:
                half.take(weights)
            if any(not np.array_equal(w, t.numpy()) for w, t in zip(weights, together.weights, strict=True)):
                return "what it makes of one variable depends on the others"
    except Exception as error:
        return f"it cannot be tried on made-up numbers ({type(error).__name__}: {error})"
    return None


class _Copy:
    """A copy of an optimizer with variables of its own, of which it updates some."""

    def __init__(self, optimizer: Any, own: Sequence[int]) -> None:
        random = np.random.default_rng(0)
        values = [random.normal(size=shape).astype(np.float32) for shape in _SHAPES]
        self.weights = [adapter.keras.Variable(value, name=f"made_up_{i}") for i, value in enumerate(values)]
        self._optimizer = type(optimizer).from_config(optimizer.get_config())
        self._optimizer.build(self.weights)
        self._own = set(own)

    def apply(self, grads: Sequence[Any]) -> None:
        """A step of the optimizer. It changes its own variables only."""
        with patched(lambda: adapter.own_updates(self._optimizer, lambda index: index in self._own, lambda: None)):
            self._optimizer.apply([tf.constant(g) for g in grads], self.weights)

    def take(self, weights: Sequence[Any]) -> None:
        """The variables get these values."""
        for variable, value in zip(self.weights, weights, strict=True):
            variable.assign(value)
