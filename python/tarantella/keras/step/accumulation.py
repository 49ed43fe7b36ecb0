"""An optimizer whose gradients are reduced over ranks before it uses them, also if it accumulates them over several steps.

An optimizer of Keras with ``gradient_accumulation_steps=k`` adds up the gradients of k calls of `apply` and uses their mean
in the last. Here each rank adds up its own gradients, weighted by its part of each batch. The sums are reduced once, in the
k-th call. The result is the mean of the gradients of k global batches, as on one device, whatever their sizes. Between these
calls the accumulators of ranks differ; their sum is the accumulator of one device.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.reduction import gradients, graph_order
from tarantella.keras.step import atomic, noise


class Reduction(Protocol):
    """Reduces gradients over ranks."""

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any] | None:
        """Their sum over ranks, times the rank's weight in this step, or the given one; None: the optimizer is to wait."""

    def weight(self) -> Any:
        """This rank's weight in this step: a scalar, float64."""

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks."""


class OptimizerHooks:
    """Replacements of an optimizer's methods: all that it does with gradients, such as clipping, it does with reduced ones.

    accumulates_reduced: whether an optimizer that accumulates gets reduced gradients in each step. False: only their sum is
        reduced.
    """

    def __init__(self, optimizer: Any, reduction: Reduction, accumulates_reduced: bool = False) -> None:
        self.optimizer = optimizer
        self.reduction = reduction
        self._accumulating = None if accumulates_reduced else adapter.accumulating(optimizer)
        self._is_reduced = False  # whether the gradients that `apply` gets next are
        self._originals = {(owner is optimizer, name): getattr(owner, name) for owner, name, _ in self.functions()}

    def functions(self) -> list[tuple[Any, str, Callable[..., Any]]]:
        """The methods to replace, with their replacements."""
        hook = adapter.optimizer_hook()
        if self._accumulating is None:
            own = [(name, adapter.taking_pairs(self._with_pairs(name))) for name in adapter.overridden_hooks(self.optimizer)]
            return [(self.optimizer, name, method) for name, method in [(hook, adapter.as_method(self._apply)), *own]]
        if overridden := adapter.overridden_hooks(self._accumulating):
            kind = type(self._accumulating).__name__
            raise UnsupportedError(
                f"{kind} has its own {overridden[0]}, which would get the gradients of a rank's own samples, and accumulates "
                f"gradients: do that in {hook}, or give it no gradient_accumulation_steps"
            )
        if self._accumulating is self.optimizer:
            return [(self.optimizer, hook, adapter.as_method(self._apply_accumulating))]
        # a LossScaleOptimizer unscales gradients, and skips steps, before the optimizer inside accumulates
        return [
            (self.optimizer, "check_finite", self._check_finite),
            (self.optimizer, hook, adapter.as_method(self._apply_scaled)),
            (self._accumulating, hook, adapter.as_method(self._apply_accumulating)),
        ]

    def _original(self, owner: Any, name: str) -> Callable[..., Any]:
        original: Callable[..., Any] = self._originals[owner is self.optimizer, name]
        return original

    def _original_apply(self, owner: Any) -> Callable[..., Any]:
        original = adapter.as_apply(self._original(owner, adapter.optimizer_hook()))

        def apply(*args: Any, **kwargs: Any) -> Any:
            with context.applying(), noise.noise_of_update():
                return original(*args, **kwargs)

        return apply

    def _with_pairs(self, name: str) -> Callable[..., Any]:
        """A method of the user's that gets reduced gradients, and calls `apply` with what it has made of them."""

        def apply(grads: Any, variables: Any, **kwargs: Any) -> Any:
            reduced = self.reduction.reduce_gradients(grads, variables)
            if reduced is None:
                return None
            with atomic.behind_gate(reduced) as reduced:
                self._is_reduced = True
                try:
                    return self._original(self.optimizer, name)(list(zip(reduced, variables, strict=True)), **kwargs)
                finally:
                    self._is_reduced = False

        return apply

    def _apply(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        if self._is_reduced:
            return self._original_apply(self.optimizer)(grads, trainable_variables, **kwargs)
        grads = list(grads)
        reduced = self.reduction.reduce_gradients(grads, self._variables(trainable_variables))
        if reduced is None:
            return None
        with atomic.behind_gate(reduced) as reduced:
            if len(adapter.optimizers_of(self.optimizer)) > 1:  # a LossScaleOptimizer skips a step that overflowed
                scale = adapter.scale_of_gradients(self.optimizer)
                reduced = [gradients.in_range_of_float16(*pair, scale) for pair in zip(reduced, grads, strict=True)]
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
        own = [gradients.weighted(gradients.dense(g, v), weight) for g, v in zip(grads, variables, strict=True)]
        sums = adapter.accumulators(owner, variables)
        held = [tf.identity(accumulator) for accumulator in sums]
        is_update_step = adapter.is_update_step(owner)

        def clear() -> bool:
            for accumulator in sums:
                accumulator.assign(tf.zeros_like(accumulator))
            return True

        # This must not wait for the gradients. At the end of a dataset of unknown length Keras starts a step that has no batch.
        # What needs no data happens in it, and so Keras, too, forgets what it had accumulated.
        tf.cond(is_update_step, clear, lambda: False)

        def reduced() -> list[tf.Tensor]:
            added = [h + g for h, g in zip(held, own, strict=True)]
            total = cast("list[Any]", self.reduction.reduce_gradients(added, variables, 1.0))
            return [tf.identity(t) for t in total]

        with graph_order.after_last():
            result = tf.cond(is_update_step, reduced, lambda: [tf.identity(g) for g in own])
        graph_order.record(result)
        given = [None if g is None else r for g, r in zip(grads, result, strict=True)]
        return self._original_apply(owner)(given, trainable_variables, **kwargs)

    def _check_finite(self, grads: Any) -> Any:
        """Whether the gradients of all ranks are finite. A rank without samples does not count."""
        finite = self._original(self.optimizer, "check_finite")(grads)
        return self.reduction.all_true(tf.logical_or(finite, tf.equal(self.reduction.weight(), 0)))

    def _apply_scaled(self, grads: Any, trainable_variables: Any = None, **kwargs: Any) -> Any:
        result = self._original_apply(self.optimizer)(grads, trainable_variables, **kwargs)
        graph_order.record([adapter.micro_steps(self._accumulating)])  # runs after the reduction, which is inside a branch
        return result


# ---------------------------------------------------------------------------------------- state between steps


def awaits_reduction(model: Any) -> bool:
    """Whether one of the model's optimizers accumulates and is between two updates."""
    return any(_awaits_reduction(optimizer) for optimizer in adapter.held_optimizers(model))


def _awaits_reduction(optimizer: Any) -> bool:
    inner = adapter.accumulating(optimizer)
    return inner is not None and bool(adapter.between_updates(inner))


def clear_on_other_ranks(model: Any) -> None:
    """After all ranks were given rank 0's state: its accumulated gradients must count once."""
    for accumulator in accumulators(model):
        if runtime.get_rank() != 0:
            accumulator.assign(np.zeros(accumulator.shape, accumulator.dtype.as_numpy_dtype))


def collect_on_rank_0(model: Any) -> None:
    """Adds up the accumulated gradients of all ranks on rank 0, for files and for a later `fit`. Collective."""
    for optimizer in adapter.held_optimizers(model):
        if _awaits_reduction(optimizer):
            sums = _accumulators(optimizer)
            totals = collectives.all_reduce_each([a.numpy() for a in sums])
            for accumulator, total in zip(sums, totals, strict=True):
                accumulator.assign(total if runtime.get_rank() == 0 else np.zeros_like(total))


def accumulators(model: Any) -> list[tf.Variable]:
    """The variables in which the model's optimizers accumulate gradients; none if they do not."""
    return [accumulator for optimizer in adapter.held_optimizers(model) for accumulator in _accumulators(optimizer)]


def _accumulators(optimizer: Any) -> Sequence[tf.Variable]:
    inner = adapter.accumulating(optimizer)
    return [] if inner is None else adapter.accumulators(inner, adapter.variables_of_optimizer(inner))
