"""Tensors that travel together in one collective."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

BUCKET_BYTES = 8 << 20
"""Tensors of this many bytes travel together: the first ones while later ones are still being computed or used."""


def buckets(tensors: Sequence[tuple[Any, Any]]) -> list[list[int]]:
    """The positions of the tensors in each bucket: of one type, in their order.

    Args:
        tensors: the type and the shape of each.
    """
    found: list[list[int]] = []
    open_bucket: dict[str, tuple[list[int], int]] = {}
    for place, (dtype, shape) in enumerate(tensors):
        name = tf.as_dtype(dtype).name
        bucket, size = open_bucket.get(name, ([], 0))
        if not bucket:
            found.append(bucket)
        bucket.append(place)
        size += int(tf.TensorShape(shape).num_elements() or 0) * tf.as_dtype(dtype).size
        open_bucket[name] = (bucket, size) if size < BUCKET_BYTES else ([], 0)
    return found
