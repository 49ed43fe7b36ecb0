"""The gradients of a training step, summed over ranks where the optimizer would just use them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.reduction import collectives, device_placement, gradients, sparse
from tarantella.keras.reduction.registry import ReducerRegistry
from tarantella.keras.step import accumulation, tapes
from tarantella.keras.step.current_step import CurrentStep


class GradientReduction:
    """Reduces the gradients of one model, each rank's weighted by its part of the batch.

    Args:
        observe: is given the reduced gradients and their variables, as the optimizer gets them.
        owners_of: gives, for variables, the ranks that need their reduced gradients in the optimizer; empty, or None: all do.
    """

    def __init__(
        self,
        model: Any,
        reducers: ReducerRegistry,
        step: CurrentStep,
        observe: Callable[[list[Any], list[Any]], None],
        owners_of: Callable[[Sequence[Any]], Sequence[int]] | None = None,
    ) -> None:
        self._model = model
        self._reducers = reducers
        self._step = step
        self._observe = observe
        self.owners_of = owners_of or (lambda _: ())
        self._weighted_in: Any = None  # the share of the step whose loss was weighted before its gradients were computed
        self._may_skip = False  # whether a step that was traced or run skips its update if a gradient is not finite

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any] | None:
        """The gradients of the global batch; None if the optimizer is to wait. A variable without a gradient keeps none."""
        kinds, reduced = self._step.loss_kinds, grads
        if kinds.noise_in_gradients:
            with device_placement.on_host():
                weight = tf.constant(1.0 if runtime.is_master_rank() else 0.0, tf.float64)
        if not kinds.reduced_at_tape or kinds.noise_in_gradients:
            weight = self.weight() if weight is None else weight
            owners = self.owners_of(variables)
            keeps_rows = self._keeps_rows()
            if keeps_rows:
                sparse.warn_of_eager_lookups(grads)
            reduced = self._reducers.sum_gradients(grads, variables, weight, owners=owners, keeps_rows=keeps_rows)
        self._observe(reduced, variables)
        return reduced

    def at_tapes(self) -> AbstractContextManager[None]:
        """The context of a training step; if it computes with its gradients, its tapes give those of the global batch."""
        if not self._step.loss_kinds.reduced_at_tape:
            return nullcontext()
        return tapes.reduced(self._reduced_at_tape)

    def _reduced_at_tape(self, grads: list[Any], variables: list[Any]) -> list[Any]:
        """The step may compute with each row of a sparse gradient, as a norm does."""
        return self._reducers.sum_gradients(grads, variables, self.weight(), keeps_rows=True)

    def _keeps_rows(self) -> bool:
        """Whether an optimizer of the model computes with each row of a sparse gradient, as often as it occurs in the batch."""
        return any(adapter.repeated_rows_matter(optimizer) for optimizer in adapter.held_optimizers(self._model))

    def weight(self) -> tf.Tensor:
        """The weight of this rank's gradients: its part of the global batch, or 1 if they are sums over its samples."""
        with device_placement.on_host():  # as current_step's
            weight = self.counted(self._step.weight())
            return weight if self._weighted_in is not self._step.share else tf.cast(weight > 0, weight.dtype)

    def with_weighted_loss(self, scale: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A LossScaleOptimizer's method that scales a loss. It scales the rank's part of the loss of the global batch.

        The mean over few samples has larger gradients for each of them than the mean over the whole batch: in float16 they
        would overflow at a lower scale than on one device.
        """

        def scale_weighted(loss: Any) -> Any:
            if not (self._step.is_running and self._step.is_training):
                return scale(loss)
            self._weighted_in, weight = self._step.share, self.counted(self._step.weight())
            if callable(loss):
                return scale(lambda: gradients.weighted(loss(), weight))
            return scale(gradients.weighted(loss, weight))

        return scale_weighted

    def counted(self, weight: tf.Tensor) -> tf.Tensor:
        """The weight of the gradients of samples that are this part of the global batch."""
        return tf.cast(weight > 0, weight.dtype) if self._step.loss_kinds.summed_gradients else weight

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks."""
        self._may_skip = True
        return collectives.all_true(flag)

    def awaits_reduction(self) -> bool:
        """Whether no step had to reduce gradients yet: the optimizer accumulates them, or skipped a step, before an update."""
        if accumulation.awaits_reduction(self._model):
            return True
        return self._may_skip and not any(steps for _, steps in self._reducers.gradient_steps())
