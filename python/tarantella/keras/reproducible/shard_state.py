"""The state that a step changes beside the trained variables: restored before each shard, brought together after the last."""

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step import moving_statistics


def random_states(model: Any) -> list[Any]:
    """The variables of all generators from which a step of the model draws random numbers."""
    states = [*adapter.seed_variables(model), *adapter.common_seed_variables(make=True)]
    return list({id(state): state for state in states}.values())


class ShardState:
    """The state that a step changes beside the trained variables, with its values when the step began.

    Args:
        kept: what trials have found of the step (`LossKinds.kept`). A training step may change more.
        ids: of the variables to look at, if a part of the model is computed; None: all.

    Attributes:
        metrics: their states.
        sums, averages: the variables whose changes by the shards are added up, and those whose changes are averaged.
    """

    def __init__(
        self,
        model: Any,
        training: bool,
        kept: tuple[Sequence[Any], Sequence[Any], Sequence[Any]] = ((), (), ()),
        ids: Collection[int] | None = None,
    ) -> None:
        def held(variables: Sequence[Any]) -> list[Any]:
            return [v for v in variables if ids is None or id(v) in ids]

        self.metrics = held(adapter.metric_variables(model))
        self._random = held(random_states(model))
        seeds = {id(state) for state in self._random}
        means, sums, alike = kept
        changed = (
            [*adapter.untrained_weights(model), *moving_statistics.attributes(model)] if training else [*means, *sums, *alike]
        )
        untrained = held([v for v in changed if id(v) not in seeds])
        self.sums = [v for v in untrained if id(v) in set(map(id, sums))]
        others = set(map(id, sums if training else [*sums, *alike]))
        self.averages = [v for v in untrained if tf.as_dtype(adapter.dtype_of(v)).is_floating and id(v) not in others]
        given = {id(v) for v in (*self.sums, *self.averages)}
        of_optimizers = held(moving_statistics.attributes_of_optimizers(model)) if training else []
        self._others = [*(v for v in untrained if id(v) not in given), *of_optimizers]
        self._before = {id(v): read(v) for v in (*self.metrics, *self._random, *untrained, *of_optimizers)}

    def begin_shard(self, shard: int) -> None:
        """Restores the state, but gives the shard random seeds of its own and metrics that have seen nothing."""
        for variable in self.metrics:
            adapter.unwrap(variable).assign(tf.zeros_like(self._before[id(variable)]))
        for variable in (*self.sums, *self.averages, *self._others):
            adapter.unwrap(variable).assign(self._before[id(variable)])
        for variable in self._random:
            adapter.unwrap(variable).assign(adapter.seed_of_shard(self._before[id(variable)], shard))

    def changes(self, variables: Sequence[Any]) -> list[tf.Tensor]:
        """The amounts that the shard has added to these variables."""
        return [read(v) - self._before[id(v)] for v in variables]

    def end(self, metrics: Sequence[tf.Tensor], averages: Sequence[tf.Tensor], sums: Sequence[tf.Tensor] = ()) -> None:
        """Ends the step, after all shards: sets the states of metrics, and adds the changes of averages and sums."""
        for variable, value in zip(self.metrics, metrics, strict=True):
            adapter.unwrap(variable).assign(value)
        for variable, change in (*zip(self.averages, averages, strict=True), *zip(self.sums, sums, strict=True)):
            adapter.unwrap(variable).assign(self._before[id(variable)] + change)
        for variable in self._random:
            adapter.unwrap(variable).assign(adapter.seed_of_next_step(self._before[id(variable)]))

    def with_metrics(self, sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The states of metrics at the beginning of the step plus these sums."""
        return [self._before[id(v)] + s for v, s in zip(self.metrics, sums, strict=True)]


def read(variable: Any) -> tf.Tensor:
    """The current value of a variable."""
    return adapter.unwrap(variable).read_value()
