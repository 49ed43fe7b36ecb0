"""Gradients as they are before and after the sum over ranks: their shapes, weights, ranges, and places in structures."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.reduction.reducer import Spec

_LARGEST_FLOAT16 = 65520.0  # what is not below this is rounded to infinity


def specs(variables: Sequence[Any], label: Callable[[Any], str] = adapter.path) -> list[Spec]:
    """The plan's view of variables. label: gives the name of one."""
    return [Spec(label(v), int(np.prod(v.shape, dtype=np.int64)), adapter.dtype_of(v)) for v in variables]


def dense(gradient: Any, variable: Any) -> tf.Tensor:
    """The gradient in the variable's shape and type; zeros if it has none."""
    dtype = adapter.dtype_of(variable)
    if gradient is None:
        return tf.zeros(variable.shape, dtype)
    return tf.cast(tf.convert_to_tensor(gradient), dtype)


def weighted(gradient: tf.Tensor, weight: Any) -> tf.Tensor:
    """``weight * gradient``: exact zeros where the weight is 0, whatever the gradient holds."""
    return tf.where(tf.equal(weight, 0), tf.zeros_like(gradient), gradient * tf.cast(weight, gradient.dtype))


def in_range_of_float16(reduced: Any, own: Any, scale: Any) -> Any:
    """The reduced gradient. It is infinite where float16, in which the rank computed its own, cannot hold the sum.

    One device adds up the samples of the batch in float16, and skips the step if the sum is too large. The sum of a part of
    the samples may fit. Without a graph nothing tells how a gradient was computed.

    Args:
        scale: the factor by which the gradient was multiplied afterwards.
    """
    if tf.executing_eagerly() or not isinstance(own, tf.Tensor) or not _was_float16(own):
        return reduced
    limit = tf.cast(_LARGEST_FLOAT16 * scale, reduced.dtype)
    return tf.where(tf.abs(reduced) < limit, reduced, reduced * np.inf)


def _was_float16(gradient: tf.Tensor) -> bool:
    operation = gradient.op
    while operation.type in ("Mul", "RealDiv", "Identity"):
        operation = operation.inputs[0].op
    return bool(operation.type == "Cast" and operation.inputs[0].dtype == tf.float16)


def flatten_up_to(sources: Any, grads: Any) -> list[Any]:
    """The gradients, each whole, in the order of the sources: `tf.nest.flatten` would take an IndexedSlices apart."""
    if not tf.nest.is_nested(sources):
        return [grads]
    places = tf.nest.pack_sequence_as(sources, list(range(len(tf.nest.flatten(sources)))))
    found: dict[int, Any] = {}

    def walk(place: Any, grad: Any) -> None:
        if isinstance(place, dict):
            for key in place:
                walk(place[key], grad[key])
        elif isinstance(place, (list, tuple)):
            for one, member in zip(place, grad, strict=True):
                walk(one, member)
        else:
            found[place] = grad

    walk(places, grads)
    return [found[i] for i in range(len(found))]
