"""The training and test steps of a model that is a pipeline: they take the place of Keras' own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.data import split
from tarantella.keras.pipeline import trace
from tarantella.keras.pipeline.cut import Cut, StageGraph
from tarantella.keras.pipeline.divisors import program_of_masks
from tarantella.keras.pipeline.gathering import Gathering
from tarantella.keras.pipeline.layer_losses import loss_type
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.keras.pipeline.step import StepRun
from tarantella.keras.pipeline.stored import PipelineState
from tarantella.keras.pipeline.updates import Updates, send_new_values
from tarantella.keras.pipeline.view import PipelineView
from tarantella.keras.pipeline.weights import Holdings
from tarantella.keras.reduction import collectives
from tarantella.keras.reproducible import options
from tarantella.keras.reproducible.shard_state import ShardState
from tarantella.keras.reproducible.sharded_reduction import ShardedGradients, ShardedMetrics
from tarantella.keras.reproducible.sharded_step import ShardedStep
from tarantella.keras.reproducible.shards import RunningSum, TreeSum
from tarantella.keras.reproducible.step import tree_reducers
from tarantella.keras.step.hooks import StepHooks
from tarantella.keras.step.patch import Attribute
from tarantella.pipeline_schedule import Schedule


class PipelineHooks(StepHooks):
    """The steps of a compiled model that is a pipeline, and what they ask for (`RankModel`).

    Args:
        cut: the model's stages.
        schedule: who computes what in a training step.
        replicas: of the pipeline.
        holdings: what this rank holds.
        in_tree: whether gradients are added up in the tree of a reproducible training, which takes more memory.
        shard_optimizer: whether each variable is updated by one replica.
        on_renewal: as `StepHooks` takes it.
    """

    holds_all_weights = False
    reproducible = True  # for a number of micro-batches
    _step: ShardedStep

    def __init__(
        self,
        model: Any,
        cut: Cut,
        schedule: Schedule,
        replicas: Replicas,
        holdings: Holdings,
        *,
        in_tree: bool,
        shard_optimizer: bool,
        on_renewal: Callable[[], None],
    ) -> None:
        options.check_model(model, replicas.micro_batches, 1)
        adapter.add_seed_generators(model)
        reducers, step = tree_reducers(model), ShardedStep()
        gradients = ShardedGradients(model, reducers, step, lambda grads, variables: None)
        metrics = ShardedMetrics(model, reducers, step)
        super().__init__(model, reducers, step, gradients, metrics, on_renewal=on_renewal)
        self.cut, self.schedule, self.replicas = cut, schedule, replicas
        self.stages = list(schedule.stages_of(replicas.position))
        own = {id(v) for stage in self.stages for v in cut.owned(stage)}
        variables = [v for v in adapter.trainable_variables(model) if id(v) in own]
        self.updates = Updates(variables, replicas, shard_optimizer)
        self.graph = StageGraph(cut)
        self.gathering = Gathering(model, holdings, self.updates.ranks)
        self.held_state = PipelineState(model, holdings, self.gathering, self.updates.ranks)
        self.view = PipelineView(holdings, self.updates.ranks)
        self._in_tree = in_tree
        self._masks: dict[tuple[Any, ...], Callable[[Any], list[Any]]] = {}

    def prepare(self) -> None:
        """There are no buckets."""

    def _attributes(self) -> list[Attribute]:
        return [*super()._attributes(), *self.graph.hooks(), *self.gathering.methods()]

    def _local_call(self, name: str) -> Callable[..., Any]:
        original = getattr(self._model, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if adapter.is_validation_of_fit(kwargs):
                return original(*args, **kwargs)
            raise UnsupportedError(
                f"a callback calls {name} of the model, of which this rank holds some stages only: call {name} of the "
                "tnt.Model, on all ranks, between calls of fit"
            )

        return call

    @property
    def served(self) -> Callable[[], AbstractContextManager[None]]:
        return self.gathering.served

    def _optimizer_hooks(self, optimizer: Any) -> list[Attribute]:
        finalize = optimizer.finalize_variable_values

        def finalize_own(variables: Any) -> None:
            """The end of `fit`, which may give the model the averages of its weights."""
            finalize(self.updates.trained)
            if adapter.has_averages(adapter.optimizers_of(optimizer)[-1]):
                self.updates.share()
                send_new_values(variables, self.cut, self.schedule, self.replicas)

        hooks: list[Attribute] = [(optimizer, "finalize_variable_values", finalize_own)]
        if len(adapter.optimizers_of(optimizer)) > 1:
            check = optimizer.check_finite  # each rank has the gradients of its own variables
            hooks.append((optimizer, "check_finite", lambda grads: collectives.all_true(check(grads))))
        return hooks

    def _train_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self._stage_step(training=True)

    def _test_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self._stage_step(training=False)

    def _stage_step(self, training: bool) -> Callable[[Any], Any]:
        def step(element: Any) -> Any:
            return StepRun(self, self._unpacked(element), training).run()

        return step

    def _predict_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def step(element: Any) -> Any:
            shards = split.unpack(adapter.unpack_batch(element) if self._step.is_single_batch else element)
            return StepRun(self, shards, training=None).run_to_predict()

        return step

    def states(self, training: bool) -> dict[int, ShardState]:
        last, metrics = len(self.cut.calls) - 1, adapter.metric_variables(self._model)
        held = {s: [*self.cut.variables(s), *(metrics if s == last else [])] for s in self.stages}
        return {s: ShardState(self._model, training, ids={id(v) for v in variables}) for s, variables in held.items()}

    @contextmanager
    def computing(self, share: split.Share, training: bool) -> Iterator[None]:
        self._step.begin_shard()
        with context.shard(), self._running(share, training):
            yield

    def _lengths(self, share: split.Share) -> AbstractContextManager[None]:
        return trace.without_lengths()

    def given(self) -> Sequence[tf.data.Dataset]:
        return self._step.given

    def new_sum(self) -> TreeSum:
        return TreeSum() if self._in_tree else RunningSum()

    def weight(self) -> tf.Tensor:
        return self.gradients.counted(self._step.weight())

    def refuse_noise(self) -> None:
        if context.graph() is not None:
            trace.refuse_noise(self._model, context.graph())

    @property
    def model(self) -> Any:
        return self._model

    def loss(self, batch: Any, y_pred: Any, training: bool, added: Sequence[tf.Tensor]) -> tf.Tensor:
        self._step.is_last = False
        return adapter.loss_and_metrics(self._model, batch, y_pred, training, added)

    def divisors(self, batch: Any, y_pred: Any, share: split.Share, training: bool) -> list[tf.Tensor]:
        self._step.is_last = False
        with self._step.collecting_divisors() as found, self.computing(share, training), adapter.without_effects():
            adapter.loss_of(self._model, batch, y_pred, training, [tf.zeros([], loss_type())])
        return found

    def program_of_masks(self, x: Any, training: bool) -> Callable[[Any], list[Any]]:
        key = training, *((tuple(tensor.shape[1:]), tensor.dtype) for tensor in tf.nest.flatten(x))
        if key not in self._masks:
            self._masks[key] = program_of_masks(self._model, x, training)
        return self._masks[key]

    def set_divisors(self, sums: list[tf.Tensor] | None) -> None:
        self._step.set_divisors(sums)
