"""Gradients and metrics of a reproducible step: summed over this rank's shards, and reduced over ranks after the last one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.data.split import Share
from tarantella.keras.reduction import gradients, sparse
from tarantella.keras.reduction.reducer import Reducer, Spec
from tarantella.keras.reduction.registry import ReducerRegistry, sum_type
from tarantella.keras.reproducible.shard_state import read
from tarantella.keras.reproducible.sharded_step import ShardedStep
from tarantella.keras.reproducible.shards import TreeSum
from tarantella.keras.step.gradient_reduction import GradientReduction
from tarantella.keras.step.metric_reduction import MetricReduction


class ShardedGradients(GradientReduction):
    """Reduces the gradients of a batch that is computed shard by shard.

    Attributes:
        shard_gradients: the gradients of the shard that was computed last.
        is_applied: whether the shard's step has given its gradients to an optimizer.
    """

    _step: ShardedStep

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.forget_batch()

    def forget_batch(self) -> None:
        """No shard of a batch was computed yet."""
        self.begin_shard()
        self._sums: list[TreeSum] | None = None  # one for each bucket
        self._reducer: Reducer | None = None

    def begin_shard(self) -> None:
        self.shard_gradients: list[tf.Tensor] = []
        self.is_applied = False

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any] | None:
        """The gradients of the global batch, once those of the last shard are there; None until then."""
        own_weight = self._step.weight()  # refuses a call outside of a step
        if self.is_applied:
            raise UnsupportedError(
                "reproducible: the training step applies gradients more than once, and those after the first would be of "
                "variables that have not changed yet in all shards but the last: use one optimizer step in each train_step"
            )
        self.is_applied = True
        if self._step.collects_divisors:
            return None
        sparse.warn_of_repeated_rows(self._model, grads, "reproducible=V")
        self.shard_gradients = [widened(gradients.dense(g, v)) for g, v in zip(grads, variables, strict=True)]
        self._reducer = reducer = self._reducers.gradient_reducer(variables, grads, self.owners_of(variables))
        if not self._step.is_last:
            return None
        sums = list(self.shard_gradients)
        for tree, bucket in zip(self.add_shard(own_weight), reducer.buckets, strict=True):
            total, weight = tree.total()
            for i, tensor in zip(bucket, total, strict=True):
                sums[i] = tensor
        reduced = zip(grads, reducer.reduce(sums, weight), variables, strict=True)
        result = [None if g is None else tf.cast(r, adapter.dtype_of(v)) for g, r, v in reduced]
        self._observe(result, variables)
        return result

    def add_shard(self, weight: tf.Tensor) -> list[TreeSum]:
        """Adds the gradients of the shard that was just computed to the sums of each bucket."""
        buckets = [] if self._reducer is None else self._reducer.buckets  # a test step has none
        if self._sums is None:
            self._sums = [TreeSum() for _ in buckets]
        for tree, bucket in zip(self._sums, buckets, strict=True):
            tree.add([self.shard_gradients[i] for i in bucket], self.counted(weight))
        return self._sums

    def awaits_reduction(self) -> bool:
        """No: every step reduces."""
        return False


class ShardedMetrics(MetricReduction):
    """Reduces the metrics of a batch that is computed shard by shard."""

    _step: ShardedStep

    def __init__(self, model: Any, reducers: ReducerRegistry, step: ShardedStep) -> None:
        super().__init__(model, reducers, step)
        self.forget_batch()

    def forget_batch(self) -> None:
        """No shard of a batch was computed yet."""
        self._sum = TreeSum()
        self._new_states: list[tf.Tensor] | None = None

    def _metrics_result(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def get_metrics_result() -> Any:
            if not self._step.is_running or self._step.collects_divisors or not self._step.is_last:
                return original()  # after an evaluation, states are those of all ranks
            return self._noted_results(adapter.results_with(self._step.state.metrics, self.new_states(), original))

        return get_metrics_result

    def add_shard(self, share: Share) -> None:
        """Adds the last shard's contribution to the metrics' states: nothing, if it has no sample."""
        states = [read(v) for v in self._step.state.metrics]
        self._sum.add([tf.where(share.samples > 0, state, tf.zeros_like(state)) for state in states])

    def _update_by_all(self, _metric: Any, original: Callable[..., Any]) -> Callable[..., Any]:
        """A rank never has the samples of all shards at once: a metric that couples samples takes each shard for a batch."""
        runtime.logger.warning(
            "reproducible: a metric that couples the samples of a batch is shown as the mean of the values of its shards"
        )
        return original

    def new_states(self) -> list[tf.Tensor]:
        """The metrics' states after all shards. Asked for in the last one."""
        if self._new_states is None:
            state = self._step.state
            self.add_shard(self._step.share)
            sums, _ = self._sum.total()
            reduced = self._sums_of_states(state.metrics, [widened(s) for s in sums])
            self._new_states = state.with_metrics([tf.cast(r, s.dtype) for r, s in zip(reduced, sums, strict=True)])
        return self._new_states

    def logs_of_batch(self, logs_of_shards: list[Any], weights: list[tf.Tensor]) -> Any:
        """The logs of the global batch: metrics by their states, other numbers as means over the samples."""
        logs = logs_of_shards[-1]
        if not isinstance(logs, dict):
            return logs
        leaves, recorded = tf.nest.flatten(logs), dict(self._results)
        others = [i for i, leaf in enumerate(leaves) if id(leaf) not in self._model_results and id(leaf) not in recorded]
        means = dict(zip(others, self._means_over_shards(logs_of_shards, others, weights), strict=True))
        results: dict[int, list[Any]] = {}
        if any(id(leaf) in recorded and id(leaf) not in self._model_results for leaf in leaves):
            results_of_model = lambda: adapter.metric_results(self._model)  # noqa: E731
            results = adapter.results_with(self._step.state.metrics, self.new_states(), results_of_model)
        reduced = []
        for i, leaf in enumerate(leaves):
            _, metric, place = recorded.get(id(leaf), (None, None, 0))
            if i in means:
                reduced.append(means[i])
            else:
                reduced.append(leaf if id(leaf) in self._model_results else results[id(metric)][place])
        return tf.nest.pack_sequence_as(logs, reduced)

    def _means_over_shards(self, logs_of_shards: list[Any], places: list[int], weights: list[tf.Tensor]) -> list[tf.Tensor]:
        if not places:
            return []
        tree = TreeSum()
        for logs, weight in zip(logs_of_shards, weights, strict=True):
            leaves = tf.nest.flatten(logs)
            numbers = [tf.convert_to_tensor(leaves[i]) for i in places]
            tree.add([tf.cast(number, tf.float64) for number in numbers], weight)
        sums, weight = tree.total()
        specs = [Spec(f"log {i}", int(np.prod(s.shape, dtype=np.int64)), "float64") for i, s in enumerate(sums)]
        means = self._reducers.reducer(f"{len(specs)} logs", specs).reduce(sums, weight)
        return [tf.cast(mean, number.dtype) for mean, number in zip(means, numbers, strict=True)]


def widened(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor in the type in which it is added up."""
    return tf.cast(tensor, sum_type(tensor.dtype.name))
