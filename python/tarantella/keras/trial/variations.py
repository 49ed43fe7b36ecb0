"""What a loss is tried on beside a batch's own numbers.

The first batch may hide what couples samples: a model that is hardly trained predicts much the same for all, samples may have
one length where those of other batches have not, all of them may have labels, and a batch has more samples than a trial. All
changes follow from a sample's own numbers, so that they are the same in a batch and in a part of it.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter, context

Given = tuple[Any, Any, Any]
"""Labels, predictions, and weights of samples or None."""

_COPIES = 64
_BYTES = 1 << 22  # of the predictions for all copies of eight samples, at most
_MARKS = (-1, -100, 255, float("nan"), 1)  # as scripts mark a sample without a label, and, for a batch of zeros, one with it


def of_all(y_true: Any, y_pred: Any, sample_weight: Any) -> Iterator[Given]:
    """What any loss is tried on."""
    predicted = _spread(y_true, y_pred)
    yield y_true, predicted, sample_weight
    yield _cut(y_true, 0, least=0.2), predicted, sample_weight


def of_own(y_true: Any, y_pred: Any, sample_weight: Any, may_fail: bool) -> Iterator[Given]:
    """What a loss of the user's own is tried on as well, eagerly.

    may_fail: whether some labels are others, with which the loss may fail.
    """
    if context.graph() is not None or not _has_rows(y_true) or not _has_rows(y_pred) or not y_pred.dtype.is_floating:
        return
    for mark in _marks(y_true.dtype) if may_fail else ():
        yield _cut(y_true, mark, least=0.0, more=y_pred), _spread(y_true, y_pred), sample_weight
    row = y_pred.dtype.size * y_pred.shape[1:].num_elements()
    copies = min(_COPIES, _BYTES // max(8 * row, 1))
    if copies > 1 and adapter.mask_of(y_pred) is None and (sample_weight is None or _has_rows(sample_weight)):
        yield _copied(y_true, copies), _faded(_spread(y_true, y_pred), copies), _copied(sample_weight, copies)


def _marks(dtype: tf.DType) -> list[float]:
    return [mark for mark in _MARKS if dtype.is_floating or dtype.min <= mark <= dtype.max]


def _has_rows(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and (tensor.dtype.is_floating or tensor.dtype.is_integer) and bool(tensor.shape.rank)


def _spread(y_true: Any, y_pred: Any) -> Any:
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


def _cut(y_true: Any, end: float, least: float, more: Any = None) -> Any:
    """Labels of which samples have other numbers of the same at their ends, as sequences have that are padded.

    Args:
        end: what is there.
        least: the part of a sample's labels that stay.
        more: other numbers of the samples; with them, those differ that have the same labels.
    """
    if not _has_rows(y_true):
        return y_true
    rows = tf.reshape(y_true, [tf.shape(y_true)[0], -1])
    number = 0.618 * tf.reduce_sum(tf.cast(rows, tf.float64), 1)
    if more is not None:
        number += 3.0 * tf.reduce_sum(tf.cast(tf.reshape(more, [tf.shape(more)[0], -1]), tf.float64), 1)
    length = tf.cast(tf.shape(rows)[1], tf.float64)
    parts = (least + (1 - least) * tf.math.floormod(number, 1.0)) * (length if least else length + 1)
    stay = tf.range(length, dtype=tf.float64)[tf.newaxis] < (tf.math.ceil(parts) if least else tf.floor(parts))[:, tf.newaxis]
    return tf.reshape(tf.where(stay, rows, tf.cast(end, rows.dtype)), tf.shape(y_true))


def _copied(tensor: Any, copies: int) -> Any:
    """Each sample so many times."""
    return None if tensor is None else tf.repeat(tensor, copies, axis=0)


def _faded(y_pred: tf.Tensor, copies: int) -> tf.Tensor:
    """The same of predictions, where each copy has a factor of its own; numbers between 0 and 1 stay between 0 and 1."""
    factors = 0.3 + 0.7 * tf.math.floormod(0.618 * tf.range(copies, dtype=tf.float64), 1.0)
    rows = _copied(y_pred, copies)
    every = tf.tile(tf.cast(factors, y_pred.dtype), [tf.shape(y_pred)[0]])
    return rows * tf.reshape(every, [-1, *[1] * (y_pred.shape.rank - 1)])
