"""Replicas of a pipeline: several pipelines of the same stages, each with a part of every batch.

The ranks of a pipeline follow each other: rank ``replica * ranks + position`` has the stages of this position.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from tarantella import runtime
from tarantella.collectives.group import Group
from tarantella.keras.data.split import Division
from tarantella.keras.reduction import collectives, fused


@dataclass(frozen=True)
class Replicas:
    """The replicas of a pipeline.

    Attributes:
        count: how many there are.
        micro_batches: of a batch, in all replicas together.
    """

    count: int
    micro_batches: int

    @property
    def ranks(self) -> int:
        """The number of ranks of a replica."""
        return runtime.get_size() // self.count

    @property
    def position(self) -> int:
        """This rank within its replica."""
        return runtime.get_rank() % self.ranks

    @property
    def first_rank(self) -> int:
        """The first rank of this rank's replica."""
        return runtime.get_rank() - self.position

    def with_position(self, position: int) -> range:
        """The ranks that have the same stages, one of each replica."""
        return range(position, runtime.get_size(), self.ranks)

    @property
    def division(self) -> Division:
        """This rank's micro-batches: all ranks of a replica have the same."""
        return self.division_of(runtime.get_rank() // self.ranks)

    def division_of(self, replica: int) -> Division:
        """The micro-batches of a replica."""
        return Division.among(self.count, replica, self.micro_batches)

    def sums(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The sums over all replicas, in the tree over ranks. Collective on the ranks with the same stages.

        Tensors of one type travel in buckets. A rank asks after its last backward pass, while earlier stages still compute.
        """
        found = list(tensors)
        if self.count == 1:
            return found
        group = Group(self.with_position(self.position))
        for places in fused.buckets([(tensor.dtype, tensor.shape) for tensor in found]):
            flat = tf.concat([tf.reshape(found[place], [-1]) for place in places], 0)
            parts = tf.split(collectives.all_reduce(flat, "sum", group), [tf.size(found[place]) for place in places])
            for place, part in zip(places, parts, strict=True):
                found[place] = tf.reshape(part, tf.shape(found[place]))
        return found
