"""Other numbers on which metrics are tried beside a batch's own.

A model that is hardly trained may predict nothing that counts: all its outputs are negative, for example, or wrong. All changes
follow from a sample's own numbers, so that they are the same in a batch and in a part of it.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

Arguments = tuple[Any, ...]
"""Labels, predictions, and others that stay: what a metric is given."""


def _of_floats(change: Callable[[tf.Tensor], tf.Tensor]) -> Callable[..., Arguments]:
    def changed(tensor: Any) -> Any:
        return change(tensor) if isinstance(tensor, tf.Tensor) and tensor.dtype.is_floating else tensor

    return lambda *args: (*tf.nest.map_structure(changed, args[:2]), *args[2:])


def _all_right(*args: Any) -> Arguments:
    """Predictions that are the labels."""
    y_true, y_pred, *others = args
    labels, classes = tf.cast(y_true, y_pred.dtype), y_pred.shape[-1]
    if y_true.shape != y_pred.shape:
        labels = tf.one_hot(tf.reshape(tf.cast(y_true, tf.int32), y_pred.shape[:-1]), classes, dtype=y_pred.dtype)
    return y_true, labels, *others


def _other_labels(*args: Any) -> Arguments:
    """Predictions that are the labels, where these are 1 for 0."""
    y_true, *others = args
    return _all_right(tf.cast(1 - tf.cast(y_true, tf.float64), y_true.dtype), *others)


CHANGES = (_of_floats(lambda tensor: -tensor), _of_floats(lambda tensor: 1 - tensor), _all_right, _other_labels)
"""Functions that give other arguments. They may fail."""
