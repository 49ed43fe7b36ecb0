"""The weights after an update: each rank has changed its own, and all ranks get them, in fused buckets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.collectives.group import Group
from tarantella.keras import adapter
from tarantella.keras.reduction import fused, rows


def owners_of(costs: Sequence[int], ranks: int) -> list[int]:
    """The owner of each variable: the largest first, each to the rank that has least so far.

    The result depends on the arguments alone. The largest part is at most 4/3 of the smallest possible one.

    Args:
        costs: of each variable, such as the bytes of its state.
    """
    owners, loads = [0] * len(costs), [0] * ranks
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        rank = min(range(ranks), key=lambda rank: (loads[rank], rank))
        owners[place] = rank
        loads[rank] += costs[place]
    return owners


class WeightGather:
    """Gives ranks the weights of their owners.

    Args:
        variables: the same on all ranks.
        owners: the rank of each, within the group.
        group: the ranks that hold them; None for all.
    """

    def __init__(self, variables: Sequence[Any], owners: Sequence[int], group: Group | None = None) -> None:
        self._variables, self._owners, self._group = list(variables), list(owners), group
        self._buckets = fused.buckets([(adapter.dtype_of(v), v.shape) for v in variables])

    def gather(self) -> tf.Tensor:
        """Gathers all weights, in a graph or eagerly. Collective.

        Returns:
            Numbers that are there when all buckets are.
        """
        return tf.stack([self._gather_bucket(number, bucket) for number, bucket in enumerate(self._buckets)])

    def _gather_bucket(self, number: int, bucket: list[int]) -> tf.Tensor:
        rank = runtime.get_rank() if self._group is None else self._group.rank
        own = [adapter.unwrap(self._variables[i]) for i in bucket if self._owners[i] == rank]
        dtype = adapter.dtype_of(self._variables[bucket[0]])
        packed = tf.concat([tf.reshape(v.read_value(), [-1]) for v in own], 0) if own else tf.zeros([0], dtype)
        gathered, numbers = rows.gathered(packed, self._group, name=f"weights {number}")
        by_rank = sorted(bucket, key=lambda i: self._owners[i])  # each rank's in their order
        parts = tf.split(gathered, [elements_of(self._variables[i]) for i in by_rank])
        for i, part in zip(by_rank, parts, strict=True):
            if self._owners[i] != rank:
                inner = adapter.unwrap(self._variables[i])
                inner.assign(tf.reshape(part, inner.shape))
        return tf.reduce_sum(numbers)


def elements_of(variable: Any) -> int:
    """The number of a variable's elements."""
    return int(np.prod(variable.shape, dtype=np.int64))


def bytes_of(variable: Any) -> int:
    """The bytes of a variable's value."""
    return elements_of(variable) * int(tf.as_dtype(adapter.dtype_of(variable)).size)
