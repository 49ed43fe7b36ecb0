"""Gradients of training loops that a user writes: who reduces them, and how much each rank counts."""

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tarantella import generations, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.reduction import collectives, gradients
from tarantella.keras.reduction.reducer import WIRE_DEFAULT, Reducer
from tarantella.keras.reduction.registry import ReducerKey, ReducerRegistry
from tarantella.keras.reduction.sparse import SparseReducer

_REDUCED = "_tnt_reduced"  # attribute of a tensor


class LoopReducers(ReducerRegistry):
    """The reducers of all loops of this process; they end with the variables they are for."""

    def _keep(self, key: ReducerKey, reducer: Reducer | SparseReducer, variables: Sequence[Any]) -> None:
        self._reducers[key] = (reducer, [])
        for variable in variables:
            weakref.finalize(variable, self._reducers.pop, key, None).atexit = False  # another object may get its id


@functools.cache
def reducers(wire_dtype: str | int = WIRE_DEFAULT) -> LoopReducers:
    """Those of this process. wire_dtype: the type in which gradients are sent, as `Reducer` takes it."""
    return LoopReducers("a custom loop", wire_dtype)


class LoopReduction:
    """How the gradients of one call are brought together, by the weight that the call was given."""

    def __init__(self, weight: Any = None, samples: Any = None) -> None:
        if weight is not None and samples is not None:
            raise ValueError("both weight and samples were given: a rank counts by one of them")
        self._given = weight
        self._samples = samples
        self._weight: tf.Tensor | None = None

    def weight(self) -> tf.Tensor:
        """This rank's factor: the given one, its part of all ranks' samples, or 1 of the number of ranks."""
        if self._weight is None:
            self._weight = self._find_weight()
        return self._weight

    def _find_weight(self) -> tf.Tensor:
        if self._given is not None:
            return tf.cast(self._given, tf.float64)
        if self._samples is None:
            return tf.constant(1 / runtime.get_size(), tf.float64)
        mine = tf.cast(self._samples, tf.float64)
        total = mine if runtime.get_size() == 1 else collectives.total(mine)
        return tf.math.divide_no_nan(mine, total)

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any]:
        """The sum over ranks of each rank's ``weight * gradient``."""
        weight = self.weight() if weight is None else weight
        if runtime.get_size() > 1:
            return reducers().sum_gradients(grads, variables, weight, keeps_rows=adapter.repeated_rows_matter())
        if self._given is None and self._samples is None:
            return grads
        return [None if g is None else _weighted(g, weight) for g in grads]

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks. Collective."""
        return collectives.all_true(flag)


def _weighted(gradient: Any, weight: tf.Tensor) -> Any:
    """The sum as several ranks would have it; a sparse gradient stays one."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_weighted(gradient.values, weight), gradient.indices, gradient.dense_shape)
    return gradients.weighted(gradient, weight)


def mark(grads: list[Any]) -> list[Any]:
    """The gradients, known from now on as reduced."""
    for gradient in grads:
        if gradient is not None:
            setattr(gradient, _REDUCED, True)
    return grads


def refuse_reduced(grads: Sequence[Any]) -> None:
    """Two of ours in one step: reducing the same gradients twice is never meant."""
    if any(getattr(gradient, _REDUCED, False) for gradient in grads):
        raise UnsupportedError(
            "these gradients come from a tnt.DistributedGradientTape and are reduced already: give them to a plain optimizer, "
            "or use a plain tf.GradientTape with tnt.optimizers.Optimizer"
        )


def prepare(what: str, instead: str) -> None:
    """Checks that no step around a call of ours in a loop reduces by itself, and that other ranks make the same call."""
    generations.refuse_newcomer(what)
    context.refuse_in_model_step(what, instead)
