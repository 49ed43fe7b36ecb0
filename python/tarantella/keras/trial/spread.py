"""What losses are tried on beside a batch's own numbers: predictions and labels that differ more between samples.

The first batch may hide what couples samples: a model that is hardly trained predicts much the same for all, and samples may
have one length where those of other batches have not. All changes follow from a sample's own numbers, so that they are the same
in a batch and in a part of it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tarantella.keras import adapter


def spread(y_true: Any, y_pred: Any) -> Any:
    """Predictions, each sample's with a factor of its own; numbers between 0 and 1 stay between 0 and 1."""
    if not isinstance(y_pred, tf.Tensor) or not y_pred.dtype.is_floating or not y_pred.shape.rank:
        return y_pred
    sample_number = tf.fill([tf.shape(y_pred)[0]], tf.constant(0.0, y_pred.dtype))
    for part, tensor in ((1.7, y_true), (5.0, y_pred)):
        if isinstance(tensor, tf.Tensor) and tensor.dtype != tf.string and tensor.shape.rank:
            numbers = tf.cast(tensor, y_pred.dtype)
            sample_number += part * tf.reduce_mean(numbers, list(range(1, tensor.shape.rank)))
    factor = tf.reshape(0.55 + 0.4 * tf.cos(3 * sample_number), [-1, *[1] * (y_pred.shape.rank - 1)])
    result = y_pred * factor + 0.04 * factor  # a model may begin with zeros
    if adapter.mask_of(y_pred) is not None:
        adapter.set_mask(result, adapter.mask_of(y_pred))
    return result


def padded(y_true: Any) -> Any:
    """Labels of which samples have other numbers of zeros at their ends, as sequences have that are padded."""
    if not isinstance(y_true, tf.Tensor) or not (y_true.dtype.is_floating or y_true.dtype.is_integer) or not y_true.shape.rank:
        return y_true
    rows = tf.reshape(y_true, [tf.shape(y_true)[0], -1])
    sample_number = tf.math.floormod(0.618 * tf.reduce_sum(tf.cast(rows, tf.float64), 1), 1.0)
    length = tf.cast(tf.shape(rows)[1], tf.float64)
    kept = tf.range(length, dtype=tf.float64)[tf.newaxis] < tf.math.ceil((0.2 + 0.8 * sample_number) * length)[:, tf.newaxis]
    return tf.reshape(tf.where(kept, rows, tf.zeros_like(rows)), tf.shape(y_true))
