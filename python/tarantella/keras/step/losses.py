"""The part of one rank's loss in the loss of the global batch.

Gradients are summed over ranks, weighted by samples. That is right for a loss that is a mean over samples. A loss that is a
sum, or a mean over the elements that a mask or sample weights leave, is scaled first: then the same weighted sum is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tarantella.keras.step.current_step import CurrentStep


def across_ranks(loss: Any, step: CurrentStep) -> Callable[..., tf.Tensor]:
    """A function like the loss of Keras: the sum over ranks of its results, weighted by samples, is the global loss."""

    def scaled(y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        value, divisor = adapter.loss_and_divisor(loss, y_true, y_pred, sample_weight)
        if divisor is adapter.ALL_ELEMENTS or step.counts_alone():
            return value
        weight = step.weight()
        share = tf.constant(1.0, tf.float64)  # a sum needs no divisor: each rank adds its own part
        if divisor is not adapter.NO_DIVISOR:
            mine = tf.where(weight > 0, tf.cast(tf.stop_gradient(divisor), tf.float64), 0.0)
            share = tf.math.divide_no_nan(mine, step.divisor_of_all(mine))
        return value * tf.cast(tf.math.divide_no_nan(share, weight), value.dtype)

    return scaled


def refuse_unreduced(losses: Any) -> None:
    """Refuses a loss that gives one number for each sample: it has no mean over the global batch.

    Raises:
        UnsupportedError: its reduction is ``None`` or ``"none"``.
    """
    for reduction in adapter.loss_reductions(losses):
        if reduction.lower() == "none":
            raise UnsupportedError(
                f"a loss with reduction={reduction!r} is not one number: use 'sum_over_batch_size', 'mean', 'sum' or "
                "'mean_with_sample_weight'"
            )
