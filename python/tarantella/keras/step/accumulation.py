"""What becomes of an optimizer whose gradients are reduced, also if it accumulates them over several steps.

An optimizer of Keras with ``gradient_accumulation_steps=k`` adds up the gradients of k calls of `apply` and uses their mean
in the last. Here each rank adds up its own, each weighted by the rank's part of the batch it belongs to, and the sums are
reduced once, in the k-th call: what comes out is the mean of k global batches' gradients, as on one device, whatever their
sizes.
Between those calls the ranks' accumulators differ; what one device would have in them is their sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.keras import adapter
from tarantella.keras.reduction import gradients, graph_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Reduction(Protocol):
    """How gradients are brought together."""

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any] | None:
        """Their sum over ranks, each rank's by its weight in this step, or by the given one; None: they wait for others."""

    def weight(self) -> Any:
        """This rank's weight in this step: a scalar, float64."""

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks."""


class OptimizerHooks:
    """What takes the place of an optimizer's methods, so that all it does, it does with reduced gradients.

    accumulates_reduced: whether those that an optimizer accumulates over steps are reduced in each step, not their sum at last.
    """

    def __init__(self, optimizer: Any, reduction: Reduction, accumulates_reduced: bool = False) -> None:
        self.optimizer = optimizer
        self.reduction = reduction
        self._accumulating = None if accumulates_reduced else adapter.accumulating(optimizer)
        self._originals = {(owner is optimizer, name): getattr(owner, name) for owner, name, _ in self.functions()}

    def functions(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        """Pairs of an owner and the name of its method, with what takes its place."""
        hook = adapter.optimizer_hook()
        if self._accumulating is None:
            return [(self.optimizer, hook, adapter.as_method(self._apply))]
        if self._accumulating is self.optimizer:
            return [(self.optimizer, hook, adapter.as_method(self._apply_accumulating))]
        # a LossScaleOptimizer scales back, and leaves steps out, before the one inside accumulates
        return [
            (self.optimizer, "check_finite", self._check_finite),
            (self.optimizer, hook, adapter.as_method(self._apply_scaled)),
            (self._accumulating, hook, adapter.as_method(self._apply_accumulating)),
        ]

    def _original(self, owner: Any, name: str) -> Callable[..., Any]:
        original: Callable[..., Any] = self._originals[owner is self.optimizer, name]
        return original

    def _original_apply(self, owner: Any) -> Callable[..., Any]:
        return adapter.as_apply(self._original(owner, adapter.optimizer_hook()))

    def _apply(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        reduced = self.reduction.reduce_gradients(list(grads), self._variables(trainable_variables))
        if reduced is None:
            return None
        return self._original_apply(self.optimizer)(reduced, trainable_variables, **kwargs)

    def _variables(self, trainable_variables: Any) -> list[Any]:
        if trainable_variables is not None:
            return list(trainable_variables)
        if not self.optimizer.built:
            raise ValueError("the optimizer does not know its variables yet: give them to apply, or build it with them before")
        return adapter.variables_of_optimizer(self.optimizer)

    def _apply_accumulating(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        owner, variables = self._accumulating, self._variables(trainable_variables)
        adapter.build_optimizer(owner, variables)
        weight = self.reduction.weight()
        mine = [gradients.times(gradients.dense(g, v), weight) for g, v in zip(grads, variables, strict=True)]
        sums = adapter.accumulators(owner, variables)

        def reduced() -> list[tf.Tensor]:
            added = [a + g for a, g in zip(sums, mine, strict=True)]
            total = cast("list[Any]", self.reduction.reduce_gradients(added, variables, 1.0))
            with tf.control_dependencies(total):
                for accumulator in sums:
                    accumulator.assign(tf.zeros_like(accumulator))
            return [tf.identity(t) for t in total]

        is_update_step = adapter.is_update_step(owner)
        with graph_order.after_last():
            result = tf.cond(is_update_step, reduced, lambda: [tf.identity(g) for g in mine])
        graph_order.done(result)
        given = [None if g is None else r for g, r in zip(grads, result, strict=True)]
        return self._original_apply(owner)(given, trainable_variables, **kwargs)

    def _check_finite(self, grads: Any) -> Any:
        """Of all ranks' gradients: each rank has its own until they are reduced. A rank without samples does not count."""
        finite = self._original(self.optimizer, "check_finite")(grads)
        return self.reduction.all_true(tf.logical_or(finite, tf.equal(self.reduction.weight(), 0)))

    def _apply_scaled(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        result = self._original_apply(self.optimizer)(grads, trainable_variables, **kwargs)
        graph_order.done([adapter.micro_steps(self._accumulating)])  # the reduction is inside of a branch; this comes after it
        return result


# ---------------------------------------------------------------------------------------- the borders of a training


def awaits_reduction(optimizer: Any) -> bool:
    """Whether an optimizer that accumulates has begun and is between two updates."""
    inner = adapter.accumulating(optimizer)
    return inner is not None and bool(adapter.between_updates(inner))


def distribute_sums(optimizer: Any) -> None:
    """After rank 0's state was given to all: what it had accumulated counts once."""
    for accumulator in all_accumulators(optimizer):
        if runtime.get_rank() != 0:
            accumulator.assign(np.zeros(accumulator.shape, accumulator.dtype.as_numpy_dtype))


def collect_sums(optimizer: Any) -> None:
    """Brings what all ranks have accumulated to rank 0, for files and for a later `fit`. Collective."""
    if not awaits_reduction(optimizer):
        return
    sums = all_accumulators(optimizer)
    totals = collectives.all_reduce_each([a.numpy() for a in sums])
    for accumulator, total in zip(sums, totals, strict=True):
        accumulator.assign(total if runtime.get_rank() == 0 else np.zeros_like(total))


def all_accumulators(optimizer: Any) -> Sequence[tf.Variable]:
    """Where an optimizer adds up gradients over several steps; none if it does not."""
    inner = adapter.accumulating(optimizer)
    return [] if inner is None else adapter.accumulators(inner, adapter.variables_of_optimizer(inner))
