"""Lengths of a batch whose shards are computed one after the other: all are gone through once before to find them.

Of that first time TensorFlow keeps only what the lengths need, as a rule the splitting of text or the rows' ends.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import context
from tarantella.keras.data.split import Share
from tarantella.keras.lengths import agreement
from tarantella.keras.lengths.decision import Combination


class LengthsNeeded(Exception):
    """A layer pads its samples to a length that is known only when all shards have been seen."""


@dataclass
class CollectedLengths:
    """The lengths of a shard, in the order in which its layers ask for them."""

    own: list[tf.Tensor] = field(default_factory=list)
    combinations: list[Combination] = field(default_factory=list)


class ShardedLengths:
    """The lengths that layers of a shard get."""

    def __init__(self) -> None:
        self._batch_lengths: Sequence[tf.Tensor] | None = None
        self._collected: CollectedLengths | None = None  # while they are collected

    @contextmanager
    def running(self, share: Share) -> Iterator[None]:
        """In this context a shard is computed, with the lengths of the batch.

        Raises:
            LengthsNeeded: (from the calls inside) they are not known.
        """
        n_asked_for, graph = 0, context.graph()

        def decide(own: tf.Tensor, combination: Combination) -> tf.Tensor:
            nonlocal n_asked_for
            if context.graph() is not graph:
                agreement.refuse("which a model with reproducible=V cannot know inside a tf.function of its own")
            if self._collected is not None:
                self._collected.own.append(agreement.counted(own, combination, share.samples))
                self._collected.combinations.append(combination)
                return own
            if self._batch_lengths is None:
                raise LengthsNeeded
            n_asked_for += 1
            return self._batch_lengths[n_asked_for - 1]

        with agreement.decided(decide, "by shards"):
            yield

    @contextmanager
    def collecting(self) -> Iterator[CollectedLengths]:
        """In this context a shard is computed only to find its lengths."""
        self._collected = CollectedLengths()
        try:
            yield self._collected
        finally:
            self._collected = None

    @contextmanager
    def given(self, shard_lengths: Sequence[Sequence[tf.Tensor]], combinations: Sequence[Combination]) -> Iterator[None]:
        """In this context the lengths of the batch are known: those of this rank's shards are given. Collective."""
        self._batch_lengths = []
        for combination, *own in zip(combinations, *shard_lengths, strict=True):
            rank_length = tf.reduce_max(tf.stack(own), 0) if combination == "max" else tf.add_n(own)
            self._batch_lengths.append(
                agreement.over_ranks(rank_length, combination) if runtime.get_size() > 1 else rank_length
            )
        try:
            yield
        finally:
            self._batch_lengths = None
