"""Ragged rows are padded to the longest one of the whole batch.

`TextVectorization` and other layers make their tokens dense by `tf.RaggedTensor.to_tensor`, as layers of the user's own do. The
padding is what a mean over it, a convolution or a recurrent layer without a mask computes with, so a rank must have as much of
it as one device. A length that the caller gives is left alone.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import tensorflow as tf

from tarantella.keras.lengths import decision

_WHAT = "rows are padded to the longest one"


def install() -> None:
    """Replaces the methods of `tf.RaggedTensor` that tell how long the longest rows are. Once in a process."""
    for name, replacement in (("to_tensor", _to_tensor), ("to_sparse", _to_sparse), ("bounding_shape", _bounding_shape)):
        setattr(tf.RaggedTensor, name, replacement(getattr(tf.RaggedTensor, name)))


def _method(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement where lengths are decided upon, else the original."""
    unconverted = tf.autograph.experimental.do_not_convert(replacement)

    @functools.wraps(original)
    def method(self: tf.RaggedTensor, *args: Any, **kwargs: Any) -> Any:
        return (unconverted if decision.is_open() else original)(self, *args, **kwargs)

    return cast("Callable[..., Any]", tf.autograph.experimental.do_not_convert(method))


def _longest(rows: tf.RaggedTensor) -> list[tf.Tensor]:
    """The length of the longest row in the whole batch, for each ragged axis."""
    own = [tf.reduce_max(tf.concat([splits[1:] - splits[:-1], [0]], 0)) for splits in rows.nested_row_splits]
    return list(tf.unstack(decision.largest(tf.stack([tf.cast(length, tf.int64) for length in own]), _WHAT), len(own)))


def _to_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    def to_tensor(rows: tf.RaggedTensor, default_value: Any = None, name: str | None = None, shape: Any = None) -> tf.Tensor:
        given = _given(rows, shape)
        ragged_axes = range(1, rows.ragged_rank + 1)
        if given is None or all(given[axis] is not None for axis in ragged_axes):
            return original(rows, default_value, name, shape)
        longest: dict[int, Any] = dict(zip(ragged_axes, _longest(rows), strict=True))
        sizes = [longest.get(axis, -1) if size is None else size for axis, size in enumerate(given)]
        padded = original(rows, default_value, name, tf.stack([tf.cast(size, rows.row_splits.dtype) for size in sizes]))
        known = [size if isinstance(size, int) else None for size in given]
        padded.set_shape([own_size if size is None else size for size, own_size in zip(known, rows.shape, strict=True)])
        return padded

    return _method(original, to_tensor)


def _given(rows: tf.RaggedTensor, shape: Any) -> list[Any] | None:
    """The sizes that the caller asks for, None for those of the rows; None: all are given, or how many there are is unknown."""
    rank = rows.shape.rank
    if rank is None or tf.is_tensor(shape):
        return None
    if shape is None:
        return [None] * rank
    if not (isinstance(shape, (list, tuple)) and any(tf.is_tensor(size) for size in shape)):
        known = tf.TensorShape(shape)
        return [None] * rank if known.rank is None else known.as_list()
    return [None if isinstance(size, int) and size == -1 else size for size in shape]


def _to_sparse(original: Callable[..., Any]) -> Callable[..., Any]:
    def to_sparse(rows: tf.RaggedTensor, name: str | None = None) -> tf.SparseTensor:
        own = original(rows, name)
        row_count, inner_shape = own.dense_shape[:1], own.dense_shape[1 + rows.ragged_rank :]
        return tf.SparseTensor(own.indices, own.values, tf.concat([row_count, tf.stack(_longest(rows)), inner_shape], 0))

    return _method(original, to_sparse)


def _bounding_shape(original: Callable[..., Any]) -> Callable[..., Any]:
    def bounding_shape(rows: tf.RaggedTensor, axis: Any = None, name: str | None = None, out_type: Any = None) -> tf.Tensor:
        own = original(rows, None, name, out_type)
        longest = [tf.cast(length, own.dtype) for length in _longest(rows)]
        shape = tf.concat([own[:1], tf.stack(longest), own[1 + rows.ragged_rank :]], 0)
        return shape if axis is None else tf.gather(shape, axis)

    return _method(original, bounding_shape)
