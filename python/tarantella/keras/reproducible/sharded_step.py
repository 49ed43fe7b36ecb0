"""The shard of a batch that is being computed in a reproducible step."""

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from tarantella.keras.reproducible.shard_state import ShardState
from tarantella.keras.step.current_step import CurrentStep


class DivisorsNeeded(Exception):
    """A loss divides by a number that is known only when all shards have been seen."""


class ShardedStep(CurrentStep):
    """One of this rank's shards, and the state that the whole step began with.

    Attributes:
        is_last: whether it is the last of this rank's shards in this step.
        collects_divisors: whether shards are computed only to find what losses divide by.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_last = False
        self.collects_divisors = False
        self._state: ShardState | None = None
        self._divisors: list[tf.Tensor] | None = None  # sums over all shards, in the order in which losses ask for them
        self._own_divisors: list[tf.Tensor] = []  # of this shard, while they are collected
        self._n_asked_for = 0

    @contextmanager
    def began_with(self, state: ShardState) -> Iterator[None]:
        """A step in this context began with this state."""
        self._state = state
        try:
            yield
        finally:
            self._state = self._divisors = None

    @property
    def state(self) -> ShardState:
        """The state that the step began with."""
        if self._state is None:
            raise RuntimeError("a step on shards has no state")
        return self._state

    def begin_shard(self) -> None:
        """The shard's losses will ask for divisors from the first one on."""
        self._n_asked_for = 0

    # ------------------------------------------------------------------------------------- divisors of losses

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The sum over all shards of the number that the loss divides by in each.

        It must be known before the first shard is computed. To that end the shards are gone through twice. Of the first time
        TensorFlow keeps only the inputs of the divisors, as a rule masks.
        """
        if self.collects_divisors:
            self._own_divisors.append(divisor)
            return divisor
        if self._divisors is None:
            raise DivisorsNeeded
        self._n_asked_for += 1
        return self._divisors[self._n_asked_for - 1]

    def set_divisors(self, divisors: list[tf.Tensor] | None) -> None:
        """The sums over all shards; None if they are not known."""
        self._divisors = divisors

    @contextmanager
    def collecting_divisors(self) -> Iterator[list[tf.Tensor]]:
        """In this context a shard is computed only to find its divisors; they are added to the list."""
        self.collects_divisors, self._own_divisors = True, []
        try:
            yield self._own_divisors
        finally:
            self.collects_divisors = False
