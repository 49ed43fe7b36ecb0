"""A rank's part of a model that is a pipeline, as its steps know it."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tarantella.keras.data import split
from tarantella.keras.pipeline.cut import Cut, StageGraph
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.keras.pipeline.updates import Updates
from tarantella.keras.pipeline.view import PipelineView
from tarantella.keras.reproducible.shard_state import ShardState
from tarantella.keras.reproducible.shards import TreeSum
from tarantella.pipeline_schedule import Schedule


class RankModel(Protocol):
    """What a step asks the hooks of a pipeline for (`tarantella.keras.pipeline.hooks`).

    Attributes:
        stages: of this rank.
        updates: the variables that this rank updates.
        view: the variables that it can hash.
        graph: runs a stage.
    """

    cut: Cut
    schedule: Schedule
    replicas: Replicas
    stages: list[int]
    updates: Updates
    view: PipelineView
    graph: StageGraph

    @property
    def model(self) -> Any:
        """The Keras model."""

    def states(self, training: bool) -> dict[int, ShardState]:
        """The state of each of this rank's stages when a step begins."""

    def computing(self, share: split.Share, training: bool) -> Any:
        """The context in which a stage computes a micro-batch."""

    def new_sum(self) -> TreeSum:
        """An empty sum of gradients of micro-batches."""

    def weight(self) -> tf.Tensor:
        """How much the micro-batch counts that is being computed."""

    def given(self) -> Sequence[tf.data.Dataset]:
        """The datasets of which the batches are, while they are known."""

    def loss(self, batch: Any, y_pred: Any, training: bool, added: Sequence[tf.Tensor]) -> tf.Tensor:
        """The loss of a micro-batch, after the metrics have seen it. added: what layers and regularizers add to it."""

    def divisors(self, batch: Any, y_pred: Any, share: split.Share, training: bool) -> list[tf.Tensor]:
        """The numbers that the losses of a micro-batch divide by. y_pred: any output with the model's masks."""

    def program_of_masks(self, x: Any, training: bool) -> Callable[[Any], list[Any]]:
        """See `tarantella.keras.pipeline.divisors`. It is made once for inputs of these shapes and types."""

    def set_divisors(self, sums: list[tf.Tensor] | None) -> None:
        """The sums over all micro-batches, or None."""

    def refuse_noise(self) -> None:
        """Raises UnsupportedError if this rank's step, in a graph, draws from a generator that no layer holds."""
