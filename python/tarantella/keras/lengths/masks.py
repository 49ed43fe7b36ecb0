"""Masks of `tf.sequence_mask` without `maxlen` are as long as the longest sample of the whole batch, as its tensors are.

Code that imported the function itself before a training, not `tf`, keeps the original.
"""

import functools
from typing import Any

import tensorflow as tf

from tarantella.keras.lengths import decision


def install() -> None:
    """Replaces the function. Once in a process."""
    original = tf.sequence_mask

    @functools.wraps(original)
    def sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = tf.bool, name: str | None = None) -> tf.Tensor:
        if maxlen is None and decision.is_open():
            lengths = tf.convert_to_tensor(lengths)
            longest = tf.reduce_max(tf.concat([tf.reshape(lengths, [-1]), tf.zeros([1], lengths.dtype)], 0))
            whole = decision.largest(tf.cast(longest, tf.int64)[tf.newaxis], "a mask is as long as the longest sample")
            maxlen = tf.cast(whole[0], lengths.dtype)
        return original(lengths, maxlen, dtype, name)

    tf.sequence_mask = tf.autograph.experimental.do_not_convert(sequence_mask)
