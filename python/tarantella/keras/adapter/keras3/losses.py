"""Losses and metrics of Keras 3."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.losses import ALL_ELEMENTS, NO_DIVISOR, divisor_of_mean, loss_and_elements
from tarantella.keras.adapter.front_end import keras
from tarantella.keras.adapter.keras3.models import is_variable, unwrap


def loss_reductions(loss: Any) -> Iterator[str]:
    """The reduction of each loss given to ``compile``."""
    for item in tf.nest.flatten(loss):
        yield str(getattr(item, "reduction", "sum_over_batch_size"))


def given_metrics(model: Any) -> list[Any]:
    """The metrics given to ``compile``, built or not, and the model's own; each once."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [] if compiled is None else keras.tree.flatten([compiled._user_metrics, compiled._user_weighted_metrics])
    made = [] if compiled is None else compiled.metrics  # of functions, for example, once it is built
    found = [*(m for m in given if isinstance(m, keras.metrics.Metric)), *made, *model.metrics]
    return list({id(metric): metric for metric in found}.values())


def loss_container(model: Any) -> Any:
    """The object that holds the losses given to ``compile`` and makes loss objects of them when it is built; None if none."""
    return getattr(model, "_compile_loss", None)


def loss_metrics(model: Any) -> list[Any]:
    """The metrics of the model that Keras gives losses in its own steps."""
    container = loss_container(model)
    return [model._loss_tracker, *([] if container is None else getattr(container, "metrics", []))]  # not before 3.5


def loss_hooks(model: Any, replace: Callable[[Any], Any]) -> list[tuple[Any, str, Any]]:
    """Patches (owner, attribute, value) that put ``replace(loss)`` in the place of each loss of a built model."""
    container = loss_container(model)
    if container is None or not container.built:
        return []
    if not hasattr(container, "_flat_losses"):  # before Keras 3.7 a public list of the losses alone, with None for an output
        replaced = [None if loss is None else replace(loss) for loss in container.flat_losses]
        return [(container, "flat_losses", replaced)]
    replaced = [item._replace(loss=replace(item.loss)) for item in container._flat_losses]
    return [(container, "_flat_losses", replaced)]


def outputs_of_losses(model: Any) -> dict[int, str]:
    """The name of each loss's output, by the loss's id; empty if there is one output."""
    container = loss_container(model)
    if container is None or not container.built:
        return {}
    if not hasattr(container, "_flat_losses"):
        names = getattr(container, "inferred_output_names", None) or container.output_names or []  # not before Keras 3.5
        losses = container.flat_losses
        return dict(zip(map(id, losses), map(str, names), strict=False)) if len(losses) > 1 else {}
    found = container._flat_losses
    return {} if len(found) < 2 else {id(item.loss): str(item.name or "/".join(map(str, item.path))) for item in found}


def loss_of(model: Any, batch: Any, y_pred: Any, training: bool, added: Sequence[tf.Tensor]) -> tf.Tensor:
    """The loss of a batch, as Keras' own steps compute it.

    Keras has no public way to give `compute_loss` other losses than those that the model's layers have.

    added: all losses of layers and regularizers.
    """
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    before = model._losses_override
    object.__setattr__(model, "_losses_override", list(added))
    try:
        return model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
    finally:
        object.__setattr__(model, "_losses_override", before)


def without_effects() -> AbstractContextManager[Any]:
    """The context in which Keras assigns to no variable, such as the state of a metric."""
    return keras.StatelessScope()  # type: ignore[no-any-return]


def loss_and_metrics(model: Any, batch: Any, y_pred: Any, training: bool, added: Sequence[tf.Tensor]) -> tf.Tensor:
    """The same, after the metrics have seen the batch.

    The metric of the loss is private: the public list of metrics does not tell which one it is.
    """
    loss = loss_of(model, batch, y_pred, training, added)
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    rows = tf.shape(next(tensor for tensor in keras.tree.flatten(x) if tensor is not None))[0]
    model._loss_tracker.update_state(loss, sample_weight=rows)
    model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)
    return loss


def added_losses(model: Any) -> list[list[Any]]:
    """What the model and each layer in it have added by `add_loss` since the model was called, in Keras' order."""
    return [layer._get_own_losses() for layer in model._flatten_layers()]


def loss_and_divisor(loss: Any, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[tf.Tensor, Any]:
    """The loss, and the divisor by which it made the weighted sum of its elements one number.

    The divisor is a number, `ALL_ELEMENTS` or `NO_DIVISOR`.
    """
    from keras.src.losses.loss import apply_mask

    value, elements, mask = loss_and_elements(loss, loss.call, y_true, y_pred, sample_weight)
    if elements is None:
        return value, ALL_ELEMENTS
    if loss.reduction == "sum":
        return value, NO_DIVISOR
    if loss.reduction != "mean_with_sample_weight":
        return value, divisor_of_mean(mask)
    weights = apply_mask(sample_weight, mask, dtype=value.dtype, reduction=loss.reduction)
    return value, ALL_ELEMENTS if weights is None else tf.reduce_sum(tf.cast(weights, tf.float64))


def as_tensors(results: Any) -> Any:
    """Results of metrics, of which some may be states themselves, as they are now."""
    return tf.nest.map_structure(lambda value: tf.identity(unwrap(value)) if is_variable(value) else value, results)


def results_with(variables: Sequence[Any], values: Sequence[tf.Tensor], results: Callable[[], Any]) -> Any:
    """The metrics' results as they would be with these values in their states. The states do not change."""
    with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
        return as_tensors(results())
