"""Losses and metrics."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import mask_of
from tarantella.keras.adapter.common.python_state import is_builtin
from tarantella.keras.adapter.front_end import keras

# what a loss divides the sum of its elements by, where that is no number (see `loss_and_divisor`)
ALL_ELEMENTS = "the number of all elements"
NO_DIVISOR = "nothing"


def loss_and_elements(
    loss: Any, call: Callable[..., Any], y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[tf.Tensor, Any, Any]:
    """The loss, the elements that its `call` computed, and the mask of the elements that count.

    The elements are None if `call` takes their mean itself. The mask is None if all elements count.
    """
    elements: list[Any] = []

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def noted(*args: Any, **kwargs: Any) -> Any:
        elements.append(call(*args, **kwargs))
        return elements[-1]

    loss.call = noted  # the only place that sees a mask of the elements, such as that of ignore_class
    try:
        value = loss(y_true, y_pred, sample_weight)
    finally:
        del loss.call
    if not elements or elements[-1].shape.rank == 0:
        return value, None, None
    masks = [mask for mask in (mask_of(y_pred), mask_of(elements[-1])) if mask is not None]
    return value, elements[-1], tf.math.logical_and(masks[0], masks[-1]) if masks else None


def is_builtin_loss(loss: Any) -> bool:
    """Whether the loss is Keras' own, or one that Keras made of a function of its own."""
    return is_builtin(loss) and is_builtin_function(getattr(loss, "fn", keras))


def divisor_of_mean(mask: Any) -> Any:
    """The divisor of a mean over the elements that the mask leaves."""
    return ALL_ELEMENTS if mask is None else tf.math.count_nonzero(mask)


def mean_metrics(model: Any) -> list[Any]:
    """The model's metrics of class `Mean`, such as those of the losses of several outputs."""
    return [metric for metric in model.metrics if type(metric) is keras.metrics.Mean]


def is_metric_of_function(metric: Any) -> bool:
    """Whether Keras made the metric of a function that is none of its own. Keras keeps it in a private attribute."""
    return type(metric) is keras.metrics.MeanMetricWrapper and not is_builtin_function(metric._fn)


def is_builtin_function(function: Any) -> bool:
    """Whether Keras defines the function."""
    return str(getattr(function, "__module__", "keras")).partition(".")[0] in ("keras", "tf_keras")


def metric_results(model: Any) -> dict[int, list[Any]]:
    """The states of each metric, and the numbers of its result, by the metric's id."""
    return {id(metric): [*metric.variables, *tf.nest.flatten(metric.result())] for metric in model.metrics}
