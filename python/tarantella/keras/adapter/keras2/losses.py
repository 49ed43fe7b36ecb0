"""Losses and metrics of legacy Keras."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.losses import ALL_ELEMENTS, NO_DIVISOR, divisor_of_mean, loss_and_elements
from tarantella.keras.adapter.front_end import keras
from tarantella.keras.adapter.tensorflow import converted_like_caller


def loss_reductions(loss: Any) -> Iterator[str]:
    """The reduction of each loss given to ``compile``."""
    for item in tf.nest.flatten(loss):
        yield str(getattr(item, "reduction", "auto"))


def given_metrics(model: Any) -> list[Any]:
    """The metrics given to ``compile``, built or not, and the model's own; each once."""
    compiled = getattr(model, "compiled_metrics", None)
    given = [] if compiled is None else tf.nest.flatten([compiled._user_metrics, compiled._user_weighted_metrics])
    found = [*(m for m in given if isinstance(m, keras.metrics.Metric)), *model.metrics]
    return list({id(metric): metric for metric in found}.values())


class _Replaced:
    """A replacement for a loss, with the reduction that Keras looks at."""

    def __init__(self, loss: Any, call: Callable[..., tf.Tensor]) -> None:
        self.reduction = loss.reduction
        self._call = call

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        return self._call(y_true, y_pred, sample_weight)


def loss_container(model: Any) -> Any:
    """The object that holds the losses given to ``compile`` and makes loss objects of them when it is built; None if none."""
    return getattr(model, "compiled_loss", None)


def loss_metrics(model: Any) -> list[Any]:
    """The metrics of the model that Keras gives losses in its own steps."""
    container = loss_container(model)
    return [*([] if container is None else container.metrics)]


def loss_hooks(model: Any, replace: Callable[[Any], Any]) -> list[tuple[Any, str, Any]]:
    """Patches (owner, attribute, value) that put ``replace(loss)`` in the place of each loss of a built model."""
    container = loss_container(model)
    if container is None or not container.built:
        return []
    replaced = [None if loss is None else _Replaced(loss, replace(loss)) for loss in container._losses]
    return [(container, "_losses", replaced)]


def outputs_of_losses(model: Any) -> dict[int, str]:
    """The name of each loss's output, by the loss's id; empty if there is one output."""
    container = loss_container(model)
    if container is None or not container.built or len(container._losses) < 2:
        return {}
    return {id(loss): name for loss, name in zip(container._losses, container._output_names, strict=True) if loss is not None}


def loss_and_divisor(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[tf.Tensor, Any]:
    """The loss, and the divisor by which it made the weighted sum of its elements one number.

    The divisor is a number, `ALL_ELEMENTS` or `NO_DIVISOR`.
    """
    call = converted_like_caller(loss.call)
    value, elements, mask = loss_and_elements(loss, call, y_true, y_pred, sample_weight)
    if elements is None:
        return value, ALL_ELEMENTS
    return value, NO_DIVISOR if loss.reduction == "sum" else divisor_of_mean(mask)


def as_tensors(results: Any) -> Any:
    """Results of metrics, of which some may be states themselves, as they are now."""
    return tf.nest.map_structure(lambda value: tf.identity(value) if tf.is_tensor(value) else value, results)


def results_with(variables: Sequence[Any], values: Sequence[tf.Tensor], results: Callable[[], Any]) -> Any:
    """The metrics' results as they would be with these values in their states. The states do not change."""
    before = [variable.read_value() for variable in variables]
    _assign(variables, values)
    found = as_tensors(results())
    _assign(variables, before)
    return found


def _assign(variables: Sequence[Any], values: Sequence[tf.Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
