"""Losses and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import mask_of
from tarantella.keras.adapter.front_end import keras

if TYPE_CHECKING:
    from collections.abc import Callable

# what a loss divides the sum of its elements by, where it is not a number (`loss_and_divisor`)
OF_ALL_ELEMENTS = "the number of all elements"
OF_NOTHING = "nothing"


def loss_and_elements(
    loss: Any, call: Callable[..., Any], y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[tf.Tensor, Any, Any]:
    """What the loss gives, the elements that its `call` computes before, and the mask that says which of them count.

    The elements are None where the loss takes their mean itself; the mask is None where there is none.
    """
    elements: list[Any] = []

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def noted(*args: Any, **kwargs: Any) -> Any:
        elements.append(call(*args, **kwargs))
        return elements[-1]

    loss.call = noted  # a mask of what is computed, by ignore_class say, is seen there only
    try:
        value = loss(y_true, y_pred, sample_weight)
    finally:
        del loss.call
    if not elements or elements[-1].shape.rank == 0:
        return value, None, None
    masks = [mask for mask in (mask_of(y_pred), mask_of(elements[-1])) if mask is not None]
    return value, elements[-1], tf.math.logical_and(masks[0], masks[-1]) if masks else None


def divisor_of_mean(mask: Any) -> Any:
    """What a mean over the elements that a mask leaves divides by."""
    return OF_ALL_ELEMENTS if mask is None else tf.math.count_nonzero(mask)


def means(model: Any) -> list[Any]:
    """Those of the model's metrics that are plain means of what they are given, such as the losses of several outputs."""
    return [metric for metric in model.metrics if type(metric) is keras.metrics.Mean]


def is_kerass_own(metric: Any) -> bool:
    """Whether Keras itself brings the metric's class."""
    return type(metric).__module__.partition(".")[0] in ("keras", "tf_keras")


def metric_results(model: Any) -> dict[int, list[Any]]:
    """The numbers that make up each metric's result, by the metric's id."""
    return {id(metric): tf.nest.flatten(metric.result()) for metric in model.metrics}
