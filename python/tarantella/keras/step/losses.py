"""What one rank's loss counts in the loss of the global batch.

Gradients are summed over ranks, weighted by samples: right for a loss that is a mean over samples. A loss that is a sum, or a
mean over what a mask or sample weights leave, is scaled before, so that the same weighted sum gives the whole batch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter

if TYPE_CHECKING:
    from collections.abc import Callable


class Weights(Protocol):
    """What a loss has to know of the step it is in."""

    def weight(self) -> tf.Tensor:
        """This rank's part of the global batch: a scalar, float64."""

    def counts_alone(self) -> bool:
        """Whether the loss is of this rank's own data."""

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The sum over ranks of what each divides by, float64."""


def across_ranks(loss: Any, step: Weights) -> Callable[..., tf.Tensor]:
    """A function like the loss of Keras, whose results are the global loss once ranks add them up weighted by samples."""

    def scaled(y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        value, divisor = adapter.loss_and_divisor(loss, y_true, y_pred, sample_weight)
        if divisor is adapter.OF_ALL_ELEMENTS or step.counts_alone():
            return value
        weight = step.weight()
        share = tf.constant(1.0, tf.float64)  # of a sum each rank has its own part
        if divisor is not adapter.OF_NOTHING:
            mine = tf.where(weight > 0, tf.cast(tf.stop_gradient(divisor), tf.float64), 0.0)
            share = tf.math.divide_no_nan(mine, step.divisor_of_all(mine))
        return value * tf.cast(tf.math.divide_no_nan(share, weight), value.dtype)

    return scaled


def refuse_unreduced(losses: Any) -> None:
    """A loss of one number for each sample has no mean that ranks could share.

    Raises:
        UnsupportedError: its reduction is ``None`` or ``"none"``.
    """
    for reduction in adapter.loss_reductions(losses):
        if reduction.lower() == "none":
            raise UnsupportedError(
                f"a loss with reduction={reduction!r} is not one number: use 'sum_over_batch_size', 'mean', 'sum' or "
                "'mean_with_sample_weight'"
            )
