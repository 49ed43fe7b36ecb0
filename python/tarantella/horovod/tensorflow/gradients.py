"""How the gradients of one step are brought together: for the tape and for the optimizer."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow import joining
from tarantella.horovod.tensorflow.collectives import Average, ReduceOp, Sum, allreduce, grouped_allreduce, operation, scaled
from tarantella.horovod.tensorflow.compression import Compression
from tarantella.keras import adapter
from tarantella.keras.loops.reducers import LoopReducers, LoopReduction
from tarantella.keras.reduction import gradients
from tarantella.keras.reduction.reducer import Reducer
from tarantella.keras.reduction.registry import ReducerKey
from tarantella.keras.reduction.sparse import SparseReducer


@dataclass
class Choices:
    """The arguments that `DistributedGradientTape` and `DistributedOptimizer` have in common.

    Raises:
        ValueError: op is neither Average nor Sum, or a predivide factor comes with Sum.
    """

    op: Any = Average
    compression: Any = Compression.none
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    process_set: ProcessSet = field(default_factory=lambda: global_process_set)
    scale_local_gradients: bool = True
    local: set[int] = field(default_factory=set)
    """The ids of variables whose gradients stay on their rank."""
    passes: int = 1
    """The sums of so many steps are reduced, where their mean is given."""

    def __post_init__(self) -> None:
        self.op: ReduceOp = operation(self.op)
        if self.op not in (Average, Sum):
            raise ValueError(f"gradients are reduced by hvd.Average or hvd.Sum, not by {self.op.name}")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")

    def register_local_var(self, variable: Any) -> None:
        """The variable's gradients are not reduced from now on: each rank has one of its own."""
        self.local.add(id(adapter.unwrap(variable)))

    def is_local(self, variable: Any) -> bool:
        """Whether the variable's gradients stay on their rank."""
        return id(adapter.unwrap(variable)) in self.local

    def is_member(self) -> bool:
        """Whether this rank reduces: one outside of the process set keeps its gradients. ValueError if there is no such set."""
        return self.process_set.group().contains_global_rank(runtime.get_rank())

    def factor(self) -> float:
        """By which a rank counts. The predivide factor is taken out again after the sum, so it changes nothing but rounding."""
        return self.passes / (self._members() if self.op == Average else 1)

    def factor_of_local(self) -> float:
        return self.passes / (self._members() if self.scale_local_gradients else 1)

    def _members(self) -> int:
        return self.process_set.group().size if self.is_member() else 1


class _Reducers(LoopReducers):
    """Each step is announced to the ranks that have joined."""

    def label(self, variable: Any) -> str:
        return joining.label(variable)

    def _before_making(self, variables: Sequence[Any]) -> None:
        joining.announce_new(variables)

    def _keep(self, key: ReducerKey, reducer: Reducer | SparseReducer, variables: Sequence[Any]) -> None:
        super()._keep(key, reducer, variables)
        joining.number(reducer)

    def _before_step(self, reducer: Reducer | SparseReducer, variables: Sequence[Any], grads: Sequence[Any]) -> None:
        joining.announce(reducer, variables, grads)


@functools.cache
def _reducers(wire_dtype: str | int) -> _Reducers:
    return _Reducers("a script for Horovod", wire_dtype)


class HorovodReduction(LoopReduction):
    """The gradients of one call."""

    def __init__(self, choices: Choices, weight: Any = None, samples: Any = None) -> None:
        super().__init__(choices.factor() if weight is None and samples is None else weight, samples)
        self._choices = choices

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any]:
        """As `LoopReduction`. weight: 1 for gradients that were multiplied by the factor before."""
        choices = self._choices
        if not choices.is_member():
            return grads if weight is not None else [scaled(gradient, choices.factor()) for gradient in grads]
        before = 1.0 if weight is None else choices.factor()
        result: list[Any] = [None] * len(grads)
        shared = []
        for i, (gradient, variable) in enumerate(zip(grads, variables, strict=True)):
            if choices.is_local(variable):
                result[i] = scaled(gradient, choices.factor_of_local() / before)
            else:
                shared.append(i)
        own = [_dense(grads[i]) if choices.sparse_as_dense else grads[i] for i in shared]
        if shared:
            reduced = self._reduced(own, [variables[i] for i in shared], self.weight() if weight is None else weight)
            for i, gradient in zip(shared, reduced, strict=True):
                result[i] = gradient
        return result

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks of the process set that have not joined. Collective on the process set."""
        if not self._choices.is_member():
            return flag
        false = tf.cast(tf.logical_not(flag), tf.int32)
        return tf.equal(allreduce(false, op=Sum, name="overflows", process_set=self._choices.process_set), 0)

    def _reduced(self, grads: list[Any], variables: list[Any], weight: Any) -> list[Any]:
        if self._choices.process_set is not global_process_set:
            return self._reduced_in_part(grads, weight)
        if runtime.get_size() == 1:
            return [scaled(gradient, self._choices.factor()) for gradient in grads]
        reducers = _reducers(self._choices.compression.wire_dtype())
        return reducers.sum_gradients(grads, variables, weight, keeps_rows=adapter.repeated_rows_matter())

    def _reduced_in_part(self, grads: Sequence[Any], weight: Any) -> list[Any]:
        """In one piece for each type: buckets, which overlap with backward, are for all ranks."""
        choices = self._choices
        there = [i for i, gradient in enumerate(grads) if gradient is not None]
        result: list[Any] = [None] * len(grads)
        own = [_weighted(grads[i], weight) for i in there]
        options = {"op": Sum, "compression": choices.compression, "process_set": choices.process_set}
        for i, gradient in zip(there, grouped_allreduce(own, name="gradients", **options), strict=True):
            result[i] = gradient
        return result


def _weighted(gradient: Any, weight: Any) -> Any:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradients.weighted(gradient.values, weight), gradient.indices, gradient.dense_shape)
    return gradients.weighted(tf.convert_to_tensor(gradient), weight)


def _dense(gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
