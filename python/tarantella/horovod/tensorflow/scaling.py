"""Factors of tensors. 16 bits hold few factors: 70000 is infinite in float16, and 1e-9 is zero, so they multiply in float32."""

from typing import Any

import tensorflow as tf


def wide_type(dtype: tf.DType) -> tf.DType:
    """The type in which numbers of this one are multiplied."""
    if not dtype.is_floating:
        return tf.float64
    return dtype if dtype.size >= 4 else tf.float32


def scaled(tensor: Any, factor: float) -> Any:
    """factor * tensor, rounded once to its type; integers lose what is behind the point. None stays None, rows stay rows."""
    if tensor is None or factor == 1.0:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(tensor.values, factor), tensor.indices, tensor.dense_shape)
    wide = wide_type(tensor.dtype)
    return tf.cast(tf.cast(tensor, wide) * tf.cast(factor, wide), tensor.dtype)


def scaled_rows(values: tf.Tensor, factor: float, divisor: int) -> tf.Tensor:
    """factor * values / divisor. Integers become float64: rows of the same index are added up later, and each must count."""
    wide = wide_type(values.dtype)
    result = tf.cast(values, wide) * tf.cast(factor, wide) / tf.cast(divisor, wide)
    return tf.cast(result, values.dtype) if values.dtype.is_floating else result
