"""What a step changes beside the trained variables: put back before each shard of a batch, brought together after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella.keras import adapter

if TYPE_CHECKING:
    from collections.abc import Sequence


def random_states(model: Any) -> list[Any]:
    """The variables of all generators that a step of the model draws random numbers from."""
    states = [*adapter.seed_variables(model), *adapter.common_seed_variables(make=True)]
    return list({id(state): state for state in states}.values())


class ShardState:
    """What a step changes beside the trained variables, as it was when the step began."""

    def __init__(self, model: Any, training: bool) -> None:
        self.metrics = adapter.metric_variables(model)
        self._random = random_states(model)
        seeds = {id(state) for state in self._random}
        untrained = [v for v in adapter.untrained_weights(model) if id(v) not in seeds] if training else []
        self.averages = [v for v in untrained if tf.as_dtype(adapter.dtype_of(v)).is_floating]
        self._others = [v for v in untrained if not tf.as_dtype(adapter.dtype_of(v)).is_floating]
        self._before = {id(v): read(v) for v in (*self.metrics, *self._random, *untrained)}

    def begin_shard(self, shard: int) -> None:
        """As when the step began, but with random seeds of the shard's own and metrics that have seen nothing."""
        for variable in self.metrics:
            adapter.unwrap(variable).assign(tf.zeros_like(self._before[id(variable)]))
        for variable in (*self.averages, *self._others):
            adapter.unwrap(variable).assign(self._before[id(variable)])
        for variable in self._random:
            adapter.unwrap(variable).assign(adapter.seed_of_shard(self._before[id(variable)], shard))

    def changes(self, variables: Sequence[Any]) -> list[tf.Tensor]:
        """What the shard has added to variables that averages are kept in."""
        return [read(v) - self._before[id(v)] for v in variables]

    def end(self, metrics: Sequence[tf.Tensor], averages: Sequence[tf.Tensor]) -> None:
        """After all shards: metrics have these states, averages have changed by that much."""
        for variable, value in zip(self.metrics, metrics, strict=True):
            adapter.unwrap(variable).assign(value)
        for variable, change in zip(self.averages, averages, strict=True):
            adapter.unwrap(variable).assign(self._before[id(variable)] + change)
        for variable in self._random:
            adapter.unwrap(variable).assign(adapter.seed_of_next_step(self._before[id(variable)]))

    def with_metrics(self, sums: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The states of metrics that have seen this much more than when the step began."""
        return [self._before[id(v)] + s for v, s in zip(self.metrics, sums, strict=True)]


def read(variable: Any) -> tf.Tensor:
    """The value that a variable has here and now."""
    return adapter.unwrap(variable).read_value()
