"""Gradients of training loops that a user writes: who reduces them, and how much each rank counts."""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import context
from tarantella.keras.reduction import collectives, gradient_order, gradients, ops
from tarantella.keras.reduction.reducer import WIRE_DEFAULT, Reducer
from tarantella.keras.reduction.sparse import SparseReducer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_REDUCED = "_tnt_reduced"  # attribute of a tensor


class LoopReducers:
    """The reducers of all loops of this process, by the variables they are for; they end with these."""

    def __init__(self) -> None:
        self._reducers: dict[tuple[str, tuple[int, ...]], Reducer | SparseReducer] = {}

    def gradient_reducer(self, variables: Sequence[Any], grads: Sequence[Any]) -> Reducer:
        """The reducer of these variables' gradients. Collective when it is asked for the first time."""

        def make() -> Reducer:
            options: dict[str, Any] = {"wire_dtype": WIRE_DEFAULT, "gradient_order": gradient_order.agreed_order(grads)}
            return Reducer("gradients", gradients.specs(variables), "a custom loop", gradients=True, **options)

        return cast("Reducer", self._of("gradients", variables, make))

    def sparse_reducer(self, variables: Sequence[Any]) -> SparseReducer:
        """The reducer of these variables' gradients, which are sparse. Collective when it is asked for the first time."""
        made = self._of("sparse gradients", variables, lambda: SparseReducer(variables, "a custom loop"))
        return cast("SparseReducer", made)

    def _of(self, name: str, variables: Sequence[Any], make: Callable[[], Reducer | SparseReducer]) -> Reducer | SparseReducer:
        key = (name, tuple(id(variable) for variable in variables))
        if key not in self._reducers:
            self._reducers[key] = make()
            for variable in variables:
                # another object may get its id
                weakref.finalize(variable, self._reducers.pop, key, None).atexit = False
        return self._reducers[key]


@functools.cache
def reducers() -> LoopReducers:
    """Those of this process."""
    return LoopReducers()


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
            return gradients.reduce(grads, variables, weight, reducers())
        if self._given is None and self._samples is None:
            return grads
        return [None if g is None else _of_one_rank(g, weight) for g in grads]

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks. Collective."""
        return tf.equal(collectives.total(tf.cast(flag, tf.int32)), runtime.get_size())


def _of_one_rank(gradient: Any, weight: tf.Tensor) -> Any:
    """What several ranks' sum would be; a sparse gradient stays one."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_of_one_rank(gradient.values, weight), gradient.indices, gradient.dense_shape)
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
    """What every call of ours in a loop needs: the ops, and not to be inside a step that reduces by itself."""
    ops.check_version(tf.__version__)
    context.refuse_in_model_step(what, instead)
