"""`tnt.Model(model, reproducible=V)`: training whose bits do not depend on the number of ranks.

The global batch is always cut into V shards. A rank runs the model's own training step on each of its shards, one after the
other, from the same state. Trained variables change once, when all gradients are there. Whatever else a step changes (averages
of BatchNormalization, metrics, random seeds) is restored before each shard, and the changes of all shards are brought together
at the end. All sums are taken in the tree of `shards`, so all ranks have the same state after each step.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, cast

import tensorflow as tf

from tarantella import runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.adapter.tensorflow import converted_like_caller
from tarantella.keras.data import split
from tarantella.keras.lengths.decision import Combination
from tarantella.keras.reduction import gradients
from tarantella.keras.reduction.reducer import WIRE_OWN, Spec
from tarantella.keras.reduction.registry import ReducerRegistry
from tarantella.keras.reproducible import options
from tarantella.keras.reproducible.shard_state import ShardState, random_states
from tarantella.keras.reproducible.sharded_lengths import LengthsNeeded, ShardedLengths
from tarantella.keras.reproducible.sharded_reduction import ShardedGradients, ShardedMetrics, widened
from tarantella.keras.reproducible.sharded_step import DivisorsNeeded, ShardedStep
from tarantella.keras.reproducible.shards import TreeSum
from tarantella.keras.step import moving_statistics
from tarantella.keras.step.hooks import Sharding, StepHooks, optimizer_names
from tarantella.keras.step.patch import Attribute
from tarantella.keras.xla import operations

Shards = list[tuple[Any, split.Share]]


class ReproducibleHooks(StepHooks):
    """The training and test steps of a compiled model, on V shards of each batch.

    Args:
        observe_gradients: is given the reduced gradients and their variables, as the optimizer gets them.
        on_renewal, sharding: as `StepHooks` takes them.
    """

    reproducible = True  # so an optimizer accumulates reduced gradients: sums over steps, then ranks, would be another tree
    gradients: ShardedGradients
    _step: ShardedStep
    metrics: ShardedMetrics

    def __init__(
        self,
        model: Any,
        shards: int,
        *,
        fusion_threshold: float | None,
        observe_gradients: Callable[[list[Any], list[Any]], None],
        on_renewal: Callable[[], None],
        sharding: Sharding | None = None,
    ) -> None:
        options.check_model(model, shards, runtime.get_size())
        self._shards = shards
        adapter.add_seed_generators(model)
        reducers, step = tree_reducers(model, fusion_threshold), ShardedStep()
        owners_of = None if sharding is None else sharding.owners_of
        gradients = ShardedGradients(model, reducers, step, observe_gradients, owners_of)
        metrics = ShardedMetrics(model, reducers, step)
        super().__init__(model, reducers, step, gradients, metrics, on_renewal=on_renewal, sharding=sharding)
        self._lengths_of_batch = ShardedLengths()
        self._needs_lengths = False  # whether a layer asked for a length that only all shards together tell
        self._needs_divisors = False  # whether a loss asked for such a number
        self._n_operations_at_update: int | None = None  # in the graph, up to the end of the optimizer's step

    @property
    def _division(self) -> split.Division:
        return split.Division.among(runtime.get_size(), runtime.get_rank(), self._shards)

    def _train_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self._in_shards(original, training=True)

    def _test_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self._in_shards(original, training=False)

    def _in_shards(self, original: Callable[[Any], Any], training: bool) -> Callable[[Any], Any]:
        def step(element: Any) -> Any:
            shards = self._unpacked(element)
            kept = self.loss_kinds.kept("train_step" if training else "test_step")
            with self._step.began_with(ShardState(self._model, training, kept)):
                try:
                    while True:
                        try:
                            return self._run_with_needs(original, shards, training)
                        except LengthsNeeded:
                            self._needs_lengths = True
                        except DivisorsNeeded:
                            self._needs_divisors = True
                finally:
                    self._forget_batch()

        return step

    def _run_with_needs(self, original: Callable[[Any], Any], shards: Shards, training: bool) -> Any:
        """`_run`, after what it needs of all shards was found in them.

        Raises:
            LengthsNeeded, DivisorsNeeded: it needs more.
        """
        known = self._lengths_of_all(original, shards, training) if self._needs_lengths else nullcontext()
        with known:
            if self._needs_divisors:
                self._step.set_divisors(self._divisors_of_all(original, shards, training))
            return self._run(original, shards, training)

    def _forget_batch(self) -> None:
        self.gradients.forget_batch()
        self.metrics.forget_batch()
        self._n_operations_at_update = None

    def _run(self, original: Callable[[Any], Any], shards: Shards, training: bool) -> Any:
        """The logs of the global batch, after the step was made on each of this rank's shards."""
        state = self._step.state
        self._forget_batch()
        averages, sums, compute = TreeSum(), TreeSum(), _traced_once(self._computed(original, training))
        logs_of_shards: list[Any] = []
        weights: list[tf.Tensor] = []
        for place, (batch, share) in enumerate(shards):
            self._step.is_last = place == len(shards) - 1
            with _data_of(batch):
                state.begin_shard(self._division.own[place])
            batch = _after(self.gradients.shard_gradients, batch)
            if not self._step.is_last:
                logs, self.gradients.shard_gradients, weight = compute(batch, share)
                self.gradients.add_shard(weight)
                self.metrics.add_shard(share)
                logs_of_shards.append(logs)
            else:
                with self._running_shard(share, training):
                    logs_of_shards.append(original(batch))
                    weight = self._step.weight()
                    self._refuse_reads_of_new_weights()
                    metrics = self.metrics.new_states()
                    logs_of_batch = self.metrics.logs_of_batch(logs_of_shards, [*weights, weight])
            weights.append(weight)
            averages.add(state.changes(state.averages), weight)
            changes = [tf.cast(change, tf.float64) for change in state.changes(state.sums)]
            sums.add(changes, tf.cast(share.samples > 0, tf.float64))
        state.end(metrics, self._averages_over_ranks(state.averages, averages), self._sums_over_ranks(state.sums, sums))
        if context.graph() is not None:
            self._refuse_random_operations(context.graph())
            self._refuse_unknown_changes(context.graph())
        return logs_of_batch

    def _computed(self, original: Callable[[Any], Any], training: bool) -> Callable[[Any, split.Share], Any]:
        """The function that gives a shard's logs, gradients and weight. It changes state as the original step does."""

        def compute(batch: Any, share: split.Share) -> tuple[Any, list[tf.Tensor], tf.Tensor]:
            with self._running_shard(share, training):
                return original(batch), self.gradients.shard_gradients, self._step.weight()

        return compute

    @contextmanager
    def _running_shard(self, share: split.Share, training: bool) -> Iterator[None]:
        self._step.begin_shard()
        self.gradients.begin_shard()
        with context.shard(), self._running(share, training):
            yield

    def _averages_over_ranks(self, variables: Sequence[Any], tree: TreeSum) -> list[tf.Tensor]:
        """The sum of the ranks' sums."""
        if not variables:
            return []
        tensors, weight = tree.total()
        reducer = self.reducers.reducer("averages", gradients.specs(variables), variables)
        reduced = reducer.reduce([widened(t) for t in tensors], weight)
        return [tf.cast(r, t.dtype) for r, t in zip(reduced, tensors, strict=True)]

    def _sums_over_ranks(self, variables: Sequence[Any], tree: TreeSum) -> list[tf.Tensor]:
        """The same of what is added up, in float64: exact for counts of samples."""
        if not variables:
            return []
        tensors, weight = tree.total()
        specs = [Spec(f"kept {i}", math.prod(adapter.unwrap(v).shape), "float64") for i, v in enumerate(variables)]
        reduced = self.reducers.reducer(f"{len(specs)} sums", specs).reduce([tf.reshape(t, [-1]) for t in tensors], weight)
        pairs = zip(reduced, map(adapter.unwrap, variables), strict=True)
        return [tf.cast(tf.reshape(total, v.shape), v.dtype) for total, v in pairs]

    def _lengths(self, share: split.Share) -> AbstractContextManager[None]:
        return self._lengths_of_batch.running(share)

    def _lengths_of_all(self, original: Callable[[Any], Any], shards: Shards, training: bool) -> AbstractContextManager[None]:
        """The context in which layers get the lengths of the batch."""
        combinations: list[Combination] = []

        def lengths(batch: Any, share: split.Share) -> list[tf.Tensor]:
            self._step.is_last = False
            collecting = self._lengths_of_batch.collecting(), self._step.collecting_divisors()
            with collecting[0] as found, collecting[1], self._running_shard(share, training):
                original(batch)
            combinations[:] = found.combinations
            return found.own

        shard_lengths, compute = [], _traced_once(lengths)
        for place, (batch, share) in enumerate(shards):
            with _data_of(batch):
                self._step.state.begin_shard(self._division.own[place])
            shard_lengths.append(compute(batch, share))
        return self._lengths_of_batch.given(shard_lengths, combinations)

    def _divisors_of_all(self, original: Callable[[Any], Any], shards: Shards, training: bool) -> list[tf.Tensor]:
        """The sums over all shards of the numbers that losses divide by."""

        def divisors(batch: Any, share: split.Share) -> list[tf.Tensor]:
            self._step.is_last = False
            with self._step.collecting_divisors() as found, self._running_shard(share, training):
                original(batch)
            return found

        tree, compute = TreeSum(), _traced_once(divisors)
        for place, (batch, share) in enumerate(shards):
            with _data_of(batch):
                self._step.state.begin_shard(self._division.own[place])
            tree.add(compute(batch, share))
        tensors, _ = tree.total()
        if not tensors:  # a test step without a loss, where that of training divides
            return []
        specs = [Spec(f"divisor {i}", 1, "float64") for i in range(len(tensors))]
        reduced = self.reducers.reducer(f"{len(specs)} divisors", specs).reduce([tf.reshape(t, [1]) for t in tensors])
        return [tf.reshape(total, []) for total in reduced]

    # ------------------------------------------------------------------------------------- what cannot be reproduced

    def _refuse_random_operations(self, graph: Any) -> None:
        known = random_states(self._model)
        draws = [*operations.with_random_states(graph), *operations.draws_of_other_generators(graph, known)]
        if draws:
            raise UnsupportedError(
                f"reproducible: the step draws random numbers by {', '.join(draws)}, which depend on the calls before, "
                "and so on how many shards a rank has: use Keras' layers, or keras.random with a keras.random.SeedGenerator"
            )

    def _refuse_unknown_changes(self, graph: Any) -> None:
        """Each shard would change such a variable once more."""
        found = operations.changed_unknown(graph, moving_statistics.known(self._model))
        if found:
            names = " and ".join(repr(variable.name) for variable in found)
            raise UnsupportedError(
                f"reproducible: the step changes {names}, of which the model does not know, and would once for "
                "each shard: make it by add_weight in a layer, a metric or the model, or change it in a callback"
            )

    def _optimizer_hooks(self, optimizer: Any) -> list[Attribute]:
        def counted(apply: Callable[..., Any]) -> Callable[..., Any]:
            @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
            def apply_and_count(*args: Any, **kwargs: Any) -> Any:
                self._refuse_early_changes()
                result = apply(*args, **kwargs)
                graph = context.graph()
                self._n_operations_at_update = None if graph is None else len(graph.get_operations())
                return result

            return cast("Callable[..., Any]", apply_and_count)

        return [(owner, name, counted(apply)) for owner, name, apply in super()._optimizer_hooks(optimizer)]

    def _refuse_early_changes(self) -> None:
        """A rank would change the weights once for each of its shards."""
        graph = None if self.gradients.is_applied else context.graph()
        found = [] if graph is None else operations.changed(graph, adapter.trainable_variables(self._model))
        if found:
            raise UnsupportedError(
                f"reproducible: the training step changes {adapter.path(found[0])} before its optimizer does, as a layer like "
                "SpectralNormalization may, and would once for each shard: do that in a callback, in on_train_batch_begin"
            )

    def _refuse_reads_of_new_weights(self) -> None:
        """Only the last of a rank's shards sees the new weights, and which shard that is depends on the number of ranks."""
        graph, begin = context.graph(), self._n_operations_at_update
        if graph is None or begin is None:
            return
        optimizers = [owner for held in adapter.held_optimizers(self._model) for owner in adapter.optimizers_of(held)]
        changed = [*adapter.trainable_variables(self._model), *map(adapter.step_counter, optimizers)]
        late = operations.used(graph, begin, changed)
        if late:
            raise UnsupportedError(
                f"reproducible: the training step uses {adapter.path(late[0])} after its optimizer step, which waits for all "
                "shards: do what needs new weights in a callback, in on_train_batch_end"
            )


def tree_reducers(model: Any, fusion_threshold: float | None = None) -> ReducerRegistry:
    """The reducers of a model, whose sums over ranks are the upper levels of the tree over shards."""
    return ReducerRegistry(optimizer_names(model), WIRE_OWN, None, fusion_threshold, tree=True)


def _traced_once(compute: Callable[[Any, split.Share], Any]) -> Callable[[Any, split.Share], Any]:
    """A function in a graph that is traced for its first shard (and the first of each other shape) and called for all."""
    if context.graph() is None:
        return compute
    like_the_step = converted_like_caller(compute)
    traced: Callable[[Any, split.Share], Any] = tf.function(like_the_step, autograph=False, jit_compile=False)
    return traced


def _data_of(batch: Any) -> Any:
    """What is done in this context waits for the batch, and is not done if there is none.

    Keras starts a step without data at the end of a dataset of unknown length. Such a step must not touch the state.
    """
    return tf.control_dependencies([t for t in tf.nest.flatten(batch, expand_composites=True) if tf.is_tensor(t)])


def _after(tensors: Sequence[tf.Tensor], batch: Any) -> Any:
    """The batch, available only after these tensors: two shards at once would need the memory of backward twice."""
    if context.graph() is None or not tensors:
        return batch
    with tf.control_dependencies(tensors):
        # Keras 3 gives a step None in the place of labels and weights that there are not
        return tf.nest.map_structure(lambda t: None if t is None else tf.identity(t), batch, expand_composites=True)
