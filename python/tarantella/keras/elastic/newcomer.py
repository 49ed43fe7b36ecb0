"""A rank that starts while the others train: its `fit` goes through the data to the step that the others have reached.

It asks where they are, goes there without training, and asks again, until it is near. Then they wait for it before a step.
"""

import time
from typing import Any

import tensorflow as tf

from tarantella import generations
from tarantella.errors import AbortedError
from tarantella.keras.checkpoint.position import Position as Target
from tarantella.keras.checkpoint.replay import Passage, depends_on_iterators_only
from tarantella.keras.elastic.last_batch import LastBatch

NEAR = 0.5
"""Seconds: a newcomer that has needed less to come to where the others were is near to where they are."""
PATIENCE = 10.0
"""Seconds: the same for a newcomer that comes no nearer, as it reads data as slowly as the others."""


class _Way(Passage):
    validation: LastBatch | None = None
    """Notes the first batch of each validation."""

    def _test_step(self, iterator: Any) -> dict[str, Any]:
        if self.validation is None or not self._begins_validation:
            return super()._test_step(iterator)
        self._begins_validation = False
        self.validation.take(iterator)
        self.validation.note()
        return {}

    def miss_validation(self) -> None:
        raise generations.refusal(
            "its model has an evaluate of its own, which it does not call on its way, and the validation data depend on how "
            "often they were read: give the same batches for each validation, without a shuffle, or leave evaluate to Keras"
        )


class Newcomer:
    """The way of one `fit` to the others.

    Args:
        model, hooks: as for `Passage`.
        training: which training of the script it is.
        dataset, steps: of its batches, and how many of them an epoch has if it has not all.
        initial_epoch: with which `fit` begins.
    """

    def __init__(
        self, model: Any, hooks: Any, training: int, dataset: tf.data.Dataset, steps: int | None, initial_epoch: int
    ) -> None:
        skips = steps is None and int(dataset.cardinality()) >= 0 and depends_on_iterators_only(dataset)
        self._training = training
        self._passage = _Way(model, hooks, Target(initial_epoch, 0, 0), initial_epoch, skips)
        self._asked = time.monotonic()
        self._longest = float("inf")  # seconds of the last way
        self._meets = False  # whether the others wait at the target
        self.has_arrived = False
        """Whether it is there: the next step is the one before which they wait."""

    def validate_on(self, dataset: tf.data.Dataset, steps: int | None, batch: LastBatch) -> None:
        """Says what it is validated on: a dataset of batches, and how many of them if not on all. batch: notes the first."""
        self._passage.validate_on(dataset, steps)
        self._passage.validation = batch

    def silenced(self, callback: Any) -> Any:
        return self._passage.silenced(callback)

    def begin(self) -> None:
        """Keras begins with the training, or the others have gone on without this newcomer."""
        self._meets = self.has_arrived = False
        self._passage.begin()
        self._ask(to_meet=False)

    def begin_epoch(self, epoch: int) -> None:
        self._passage.begin_epoch(epoch)
        self._look()
        if self.has_arrived:
            self._passage.end()

    def begin_step(self) -> bool:
        """Keras is about to take a batch. Returns whether callbacks hear of this epoch from now on."""
        begins = self.has_arrived and self._passage.muted
        if begins:
            self._passage.end()
        return begins

    def end_step(self) -> None:
        """Keras has taken a batch."""
        self._look()

    def end_epoch(self) -> None:
        if missed := self._passage.missed():
            raise generations.refusal(f"its data {missed}, and the others have made more steps")

    def _look(self) -> None:
        while not self.has_arrived and self._passage.has_arrived():
            if self._meets:
                self.has_arrived = True
                return
            way = time.monotonic() - self._asked
            is_near = way < NEAR or (way < PATIENCE and way > 0.8 * self._longest)
            self._longest = way
            self._ask(to_meet=is_near)

    def _ask(self, to_meet: bool) -> None:
        found = generations.position_of_others(to_meet)
        if found is None:
            raise AbortedError("the job ended before this rank could join it")
        if found.training != self._training:
            raise generations.refusal_of_training(found.training)
        self._asked, self._meets = time.monotonic(), to_meet
        self._passage.target = Target(found.epoch, found.step, 0)
