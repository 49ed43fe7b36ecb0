"""The losses that a model's layers add, and its regularizers: each stage computes its own, and the last one adds up all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.pipeline.crossings import Crossing, Kind, Part


def key_of(stage: int) -> int:
    """The key of the crossing that has a stage's losses. No id is negative."""
    return -1 - stage


def loss_type() -> tf.DType:
    """The type in which Keras adds up losses."""
    return tf.as_dtype(keras.backend.floatx())


@dataclass(frozen=True)
class LayerLosses:
    """Which stage has which losses.

    Attributes:
        added: the stage of each loss that layers add, in Keras' order, by whether the model is trained.
        regularized: the variables with a regularizer, in the order of the model, each with its stage.
        stages: how many there are.
    """

    added: dict[bool, list[int]]
    regularized: tuple[tuple[Any, int], ...]
    stages: int

    def _count(self, stage: int) -> int:
        added = max(stages.count(stage) for stages in self.added.values())
        return added + sum(s == stage for _, s in self.regularized)

    def crossings(self) -> list[Crossing]:
        """How the losses of all stages but the last travel to it. Those of a micro-batch travel together."""
        last = self.stages - 1
        return [
            Crossing(f"the layers of stage {s}", key_of(s), s, (last,), (Part(loss_type(), (n,), False),), Kind.LOSSES)
            for s in range(last)
            if (n := self._count(s))
        ]

    def stage_losses(self, model: Any, stage: int, training: bool) -> list[tf.Tensor]:
        """The losses of a stage that has just run, each a number."""
        added = [loss for losses in adapter.added_losses(model) for loss in losses]
        if len(added) != self.added[training].count(stage):
            raise RuntimeError(f"stage {stage} added {len(added)} losses, and {self.added[training].count(stage)} before")
        own = [*added, *(v.regularizer(v) for v, s in self.regularized if s == stage)]
        return [tf.cast(tf.reduce_sum(adapter.unwrap(loss)), loss_type()) for loss in own]

    def packed(self, stage: int, losses: Sequence[tf.Tensor]) -> tf.Tensor:
        """A stage's losses as they travel. Evaluation may have fewer than training."""
        return tf.stack([*losses, *[tf.zeros([], loss_type())] * (self._count(stage) - len(losses))])

    def in_order(self, own: Sequence[tf.Tensor], received: dict[int, tf.Tensor], training: bool) -> list[tf.Tensor]:
        """All losses in Keras' order, on the last stage. own: its own. received: those of other stages, by key."""
        remaining = {s: iter(tf.unstack(received[key_of(s)])) for s in range(self.stages - 1) if key_of(s) in received}
        remaining[self.stages - 1] = iter(own)
        stages = [*self.added[training], *(s for _, s in self.regularized)]
        return [next(remaining[s]) for s in stages]
