"""Which rows of a batch's tensors belong to a shard.

The tensors of a batch may have different sizes: a zip of datasets has batches of 5 and of 20 samples. If g is their greatest
common divisor, each tensor is g groups of equally many samples: group j has the samples ``tensor[j::g]``. Shard s of n takes
the groups s, s + n, s + 2n, ..., of every tensor. It so has the same part of each: one weight is right for a mean over any of
them, and for a sum of such means. Where all sizes are the same, or n divides all, these are the samples ``tensor[s::n]``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import tensorflow as tf

Number: TypeAlias = "int | tf.Tensor"
"""A number that is known when the graph is made, or a scalar of type int64."""


def size_of(tensor: Any) -> tf.Tensor:
    """The number of samples of a dense, ragged or sparse tensor: a scalar, int64."""
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    if isinstance(tensor, tf.SparseTensor):
        return tensor.dense_shape[0]
    return tf.shape(tensor, tf.int64)[0]


def number_of_groups(tensors: Sequence[Any], one_size: bool) -> Number:
    """The greatest common divisor of the tensors' sizes.

    one_size: whether all sizes are known to be the same.
    """
    known = [tensor.shape[0] for tensor in tensors]
    numbers = [size for size in known if size is not None]
    if one_size or len(tensors) == 1:
        return numbers[0] if numbers else size_of(tensors[0])
    if len(numbers) == len(known):
        return math.gcd(*numbers)
    sizes = tf.stack([size_of(tensor) for tensor in tensors])
    # tried one by one: a loop of Euclid's would cost more to trace than this costs in all steps
    divisors = tf.range(1, tf.reduce_min(sizes) + 1)
    divides_all = tf.reduce_all(sizes[:, tf.newaxis] % divisors == 0, 0)
    return tf.reduce_max(tf.where(divides_all, divisors, 0))


def proportion(tensors: Sequence[Any]) -> tf.Tensor:
    """The tensors' sizes, divided by their greatest common divisor: int64. All are 1 if the sizes are the same."""
    return tf.stack([size_of(tensor) for tensor in tensors]) // number_of_groups(tensors, one_size=False)


@dataclass(frozen=True)
class Groups:
    """The groups ``begin, begin + step, ...`` before ``end``, of so many in all."""

    begin: Number
    end: Number
    step: int
    all_groups: Number
    single: bool
    """Whether a group is known to be one sample of each tensor."""
    count: tf.Tensor
    """How many groups these are: a scalar, int64. 0 if they do not count."""

    def rows_of(self, tensor: Any) -> Any:
        """The rows of a tensor that are in these groups."""
        if isinstance(tensor, tf.SparseTensor):
            return self._sparse_rows(tensor)
        rows = tf.range(self.begin, self.end, self.step, tf.int64)
        if not self.single:
            known = tensor.shape[0] if isinstance(self.all_groups, int) else None
            begins = tf.range(0, size_of(tensor) if known is None else known, self.all_groups, tf.int64)
            rows = tf.reshape(begins[:, tf.newaxis] + rows, [-1])
        return tf.gather(tensor, rows)  # whole samples at a time: TensorFlow's slices with a step copy number by number

    def _sparse_rows(self, tensor: tf.SparseTensor) -> tf.SparseTensor:
        """The same rows, which TensorFlow cannot gather from a sparse tensor."""
        group = tensor.indices[:, 0] % self.all_groups
        kept = tf.sparse.retain(tensor, (group >= self.begin) & (group < self.end) & ((group - self.begin) % self.step == 0))
        count = -(-(self.end - self.begin) // self.step)
        rows, others = kept.indices[:, :1], kept.indices[:, 1:]
        rows = rows // self.all_groups * count + (rows % self.all_groups - self.begin) // self.step
        size = tensor.dense_shape[:1] // self.all_groups * count
        part = tf.SparseTensor(tf.concat([rows, others], 1), kept.values, tf.concat([size, tensor.dense_shape[1:]], 0))
        part.set_shape([None, *tensor.shape[1:]])
        return part


def shard_groups(shard: int, shards: int, groups: Number, one_size: bool) -> Groups:
    """The groups of a shard; one that has none gets the first, which does not count.

    Args:
        shard: from `shards` on it has none.
        groups: how many there are.
        one_size: as for `number_of_groups`.
    """
    if shard >= shards:
        return Groups(0, 1, shards, groups, one_size, tf.constant(0, tf.int64))
    if isinstance(groups, int):
        if shard < groups:  # the shape of the part is known, too
            return Groups(shard, groups, shards, groups, one_size, tf.constant(len(range(shard, groups, shards)), tf.int64))
        groups = _unknown_number(groups)
    count = tf.maximum((groups - shard + shards - 1) // shards, 0)
    begin = tf.where(count > 0, tf.constant(shard, tf.int64), 0)
    return Groups(begin, tf.where(count > 0, groups, 1), shards, groups, one_size, count)


def _unknown_number(number: int) -> tf.Tensor:
    """A tensor from which TensorFlow infers no shape: a shard that never has a sample must not look like one that has."""
    tensor = tf.constant(number, tf.int64)
    return tensor if tf.executing_eagerly() else tf.compat.v1.placeholder_with_default(tensor, [])
