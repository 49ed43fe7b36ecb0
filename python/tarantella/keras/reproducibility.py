"""`tnt.Model(model, reproducible=V)`: training whose bits do not depend on how many ranks there are.

The global batch is always cut into V shards. A rank runs the model's own training step on each of its shards, one after the
other, from the same state: trained variables are changed once, when all gradients are there; what else a step changes
(averages of BatchNormalization, metrics, random seeds) is put back before each shard, and what the shards made of it is brought
together at the end. All sums are taken in the tree of `shards`, so all ranks have the same state after each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella import environment, runtime
from tarantella.errors import InvalidArgumentError, UnsupportedError, mark
from tarantella.keras import adapter, autotune, context, data, fingerprint, gradients, normalization
from tarantella.keras.reducer import AS_THEY_ARE, Reducer, Spec
from tarantella.keras.shard_state import ShardState, draws_of_other_generators, random_states, read
from tarantella.keras.shards import TreeSum
from tarantella.keras.step import OTHER_BATCH, StepHooks, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tarantella.keras.step import Key


def shards_of_batches(wished: Any, gradient_dtype: str | None, bucket_hook: Any) -> int | None:
    """Into how many shards each batch is cut, whatever the number of ranks; None: into one for each rank.

    Args:
        wished: what the user gave, None: as the environment says.
        gradient_dtype, bucket_hook: what else was given to `tnt.Model`.

    Raises:
        InvalidArgumentError: it is no power of two. UnsupportedError: it does not go with the others.
    """
    shards = environment.reproducible() if wished is None else wished
    if shards is None:
        return None
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1 or shards & (shards - 1):
        raise InvalidArgumentError(f"reproducible is {shards!r}: use the number of shards of a batch, a power of two such as 8")
    if gradient_dtype is not None or environment.gradient_dtype() != "none":
        raise UnsupportedError(
            "reproducible and gradient_dtype (TNT_GRADIENT_DTYPE) cannot go together: what is rounded on its way to other "
            "ranks depends on how many there are"
        )
    if bucket_hook is not None:
        raise UnsupportedError("reproducible and bucket_hook cannot go together: buckets depend on the number of ranks")
    _prepare_tensorflow()
    return shards


def _prepare_tensorflow() -> None:
    tf.config.experimental.enable_op_determinism()
    runtime.logger.info("reproducible: TensorFlow's deterministic operations are switched on")
    if environment.threads_chosen() and not tf.config.threading.get_intra_op_parallelism_threads():
        runtime.logger.warning(
            "reproducible: TensorFlow computes an operation with as many threads as a rank has cores, and convolutions give "
            "other bits with other numbers of them: set TNT_REPRODUCIBLE (tarantella --reproducible) or "
            "TF_NUM_INTRAOP_THREADS for results that do not depend on the number of ranks"
        )


class _NeedsDivisors(Exception):
    """A loss divides by what is only known when all shards have been seen."""


class ReproducibleHooks(StepHooks):
    """The training and test steps of a compiled model, on V shards of each batch."""

    reproducible = True  # so an optimizer accumulates what was reduced: sums over steps, then ranks, would be another tree

    def __init__(self, model: Any, shards: int, fusion_threshold: float | None = None) -> None:
        super().__init__(model, fusion_threshold=fusion_threshold)
        self._gradients = {"wire_dtype": AS_THEY_ARE}
        size = runtime.get_size()
        if shards % size:
            raise InvalidArgumentError(
                f"reproducible={shards} on {size} ranks: the number of ranks must divide the number of shards; use "
                f"{', '.join(str(1 << i) for i in range(shards.bit_length()))} ranks"
            )
        if adapter.is_jit_compiled(model):
            raise UnsupportedError(
                "reproducible and jit_compile=True cannot go together: what XLA makes of a shard depends on what is compiled "
                "with it; compile the model with jit_compile=False"
            )
        if normalization.statistics(model):
            raise UnsupportedError(
                "reproducible: a synchronized BatchNormalization needs all shards at once, and a rank has them one after the "
                "other: use keras.layers.BatchNormalization, whose statistics are those of each shard on any number of ranks"
            )
        adapter.use_generators(model)
        self.shards = shards
        self._division = data.Division.among(size, runtime.get_rank(), shards)
        self._state: ShardState | None = None
        self._is_last = False  # of this rank's shards in this step
        self._forget_step()
        self._divides = False  # whether a loss asked for what only all shards together tell
        self._divisors: list[tf.Tensor] | None = None  # of all shards, in the order in which losses ask for them
        self._seen_divisors: list[tf.Tensor] | None = None  # of this shard, while they are looked for
        self._n_divisors = 0

    def _forget_step(self) -> None:
        self._metric_sum, self._sums_of_gradients = TreeSum(), dict[Any, list[TreeSum]]()
        self._new_metrics: list[tf.Tensor] | None = None
        self._of_metrics: dict[int, Any] = {}  # tensors that get_metrics_result gave in the last shard
        self._shards_gradients: list[tf.Tensor] = []
        self._applied = False

    # ------------------------------------------------------------------------------------------------ reducers

    def prepare(self) -> None:
        """Like that of `StepHooks`; but no thresholds are tried."""
        if not self._begun and environment.autotune():
            runtime.logger.warning("TNT_AUTOTUNE tries nothing: the model is reproducible")
        self._begun = True
        super().prepare()

    def _reducer(self, key: Key, of: Sequence[Any], specs: Sequence[Spec], **options: Any) -> Reducer:
        in_32_bits = [Spec(s.name, s.count, _sum_type(s.dtype)) for s in specs]
        return super()._reducer(key, of, in_32_bits, tree=True, **options)

    # ------------------------------------------------------------------------------------------------ the steps

    def _train_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self._in_shards(original, training=True)

    def _test_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return self._in_shards(original, training=False)

    def _in_shards(self, original: Callable[[Any], Any], training: bool) -> Callable[[Any], Any]:
        def step(element: Any) -> Any:
            shards = self._unpacked(element)
            self._state = ShardState(self._model, training)
            try:
                if not self._divides:
                    try:
                        return self._run(original, shards, training)
                    except _NeedsDivisors:
                        self._divides = True
                self._divisors = self._divisors_of_all(original, shards, training)
                return self._run(original, shards, training)
            finally:
                self._state = self._divisors = None
                self._forget_step()

        return step

    def _run(self, original: Callable[[Any], Any], shards: list[tuple[Any, data.Share]], training: bool) -> Any:
        state = self._state_of_step()
        self._forget_step()
        averages, logs_of_shards, weights = TreeSum(), [], []
        for place, (batch, share) in enumerate(shards):
            self._is_last = place == len(shards) - 1
            state.begin_shard(self._division.own[place])
            self._applied, self._n_divisors = False, 0
            with self._shard(share, training):
                logs_of_shards.append(original(_after(self._shards_gradients, batch)))
                weights.append(self.weight())
                averages.add(state.changes(state.averages), weights[-1])
                if not self._is_last:
                    self._metric_sum.add(self._seen_by_metrics())
                    continue
                metrics = self._states_of_metrics()
                logs = self._logs_of_all(logs_of_shards, weights)
        state.end(metrics, self._over_ranks("averages", state.averages, averages))
        if context.graph() is not None:
            self._refuse_random_operations(context.graph())
        return logs

    def _state_of_step(self) -> ShardState:
        if self._state is None:
            raise RuntimeError("a step on shards has no state")
        return self._state

    def _refuse_random_operations(self, graph: Any) -> None:
        known = random_states(self._model)
        operations = [*autotune.random_operations(graph), *draws_of_other_generators(graph, known)]
        if operations:
            raise UnsupportedError(
                f"reproducible: the step draws random numbers by {', '.join(operations)}, which depend on the calls before, "
                "and so on how many shards a rank has: use Keras' layers, or keras.random with a keras.random.SeedGenerator"
            )

    def _over_ranks(self, name: str, variables: Sequence[Any], tree: TreeSum) -> list[tf.Tensor]:
        """The sum of the ranks' sums."""
        if not variables:
            return []
        tensors, weight = tree.total()
        reducer = self._reducer(key_of(name, variables), variables, gradients.specs(variables))
        reduced = reducer.reduce([_widened(t) for t in tensors], weight)
        return [tf.cast(r, t.dtype) for r, t in zip(reduced, tensors, strict=True)]

    # ----------------------------------------------------------------------------------------------- gradients

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any] | None:
        """The gradients of the global batch, once the last shard's are there; None until then."""
        if self._share is None:
            self.weight()  # says that this is no step
        if self._applied:
            raise UnsupportedError(
                "reproducible: the training step applies gradients more than once, and those after the first would be of "
                "variables that have not changed yet in all shards but the last: use one optimizer step in each train_step"
            )
        self._applied = True
        if self._seen_divisors is not None:
            return None
        mine = [_widened(gradients.dense(g, v)) for g, v in zip(grads, variables, strict=True)]
        self._shards_gradients = mine
        reducer = self.gradient_reducer(variables, grads)
        sums = self._sums_of_gradients.setdefault(id(reducer), [TreeSum() for _ in reducer.buckets])
        for tree, bucket in zip(sums, reducer.buckets, strict=True):
            tree.add([mine[i] for i in bucket], self.weight())
        if not self._is_last:
            return None
        for tree, bucket in zip(sums, reducer.buckets, strict=True):
            total, weight = tree.total()
            for i, tensor in zip(bucket, total, strict=True):
                mine[i] = tensor
        reduced = zip(grads, reducer.reduce(mine, weight), variables, strict=True)
        result = [None if g is None else tf.cast(r, adapter.dtype_of(v)) for g, r, v in reduced]
        return fingerprint.noted(self._model, result, variables)

    def awaits_reduction(self) -> bool:
        """No: every step reduces."""
        return False

    def settle(self) -> None:
        """Nothing differs between ranks."""
        self.apart = False

    # --------------------------------------------------------------------------------- what losses divide by

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The sum over all shards of what the loss divides by in each. It is known before the first shard is computed.

        To that end the shards are gone through twice; of the first time TensorFlow keeps only what divisors (masks, as a rule)
        are made of.
        """
        if self._seen_divisors is not None:
            self._seen_divisors.append(divisor)
            return divisor
        if self._divisors is None:
            raise _NeedsDivisors
        self._n_divisors += 1
        return self._divisors[self._n_divisors - 1]

    def _divisors_of_all(
        self, original: Callable[[Any], Any], shards: list[tuple[Any, data.Share]], training: bool
    ) -> list[tf.Tensor]:
        tree = TreeSum()
        try:
            for place, (batch, share) in enumerate(shards):
                self._state_of_step().begin_shard(self._division.own[place])
                self._seen_divisors, self._applied, self._is_last = [], False, False
                with self._shard(share, training):
                    original(batch)
                tree.add(self._seen_divisors)
        finally:
            self._seen_divisors = None
        tensors, _ = tree.total()
        if not tensors:  # a test step without a loss, where that of training divides
            return []
        specs = [Spec(f"divisor {i}", 1, "float64") for i in range(len(tensors))]
        reducer = self._reducer(key_of(f"{len(specs)} divisors", ()), (), specs)
        return [tf.reshape(total, []) for total in reducer.reduce([tf.reshape(t, [1]) for t in tensors])]

    # ------------------------------------------------------------------------------------------------- metrics

    def _metrics_result(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def get_metrics_result() -> Any:
            if self._share is None or self._seen_divisors is not None or not self._is_last:
                return original()  # after an evaluation, states are those of all ranks
            state = self._state_of_step()
            result = adapter.results_with(state.metrics, self._states_of_metrics(), original)
            self._of_metrics.update((id(leaf), leaf) for leaf in tf.nest.flatten(result))
            return result

        return get_metrics_result

    def _seen_by_metrics(self) -> list[tf.Tensor]:
        """What this shard has added to the metrics' states: nothing, if it has no sample."""
        share = self._share
        if share is None:
            raise RuntimeError("a step has no share of a batch")
        states = [read(v) for v in self._state_of_step().metrics]
        return [tf.where(share.samples > 0, state, tf.zeros_like(state)) for state in states]

    def _states_of_metrics(self) -> list[tf.Tensor]:
        """The metrics' states after all shards, summed with the check that all ranks saw one batch; in the last shard."""
        if self._new_metrics is None:
            share, state = self._share, self._state_of_step()
            if share is None:
                raise RuntimeError("a step has no share of a batch")
            self._metric_sum.add(self._seen_by_metrics())
            sums, _ = self._metric_sum.total()
            size = runtime.get_size()
            prints = tf.one_hot(runtime.get_rank(), size, share.fingerprint, tf.constant(0, tf.int64), dtype=tf.int64)
            specs = [*gradients.specs(state.metrics), Spec("fingerprint of the batch", size, "int64")]
            reducer = self._reducer(key_of("metrics", state.metrics), state.metrics, specs)
            *reduced, prints = reducer.reduce([*(_widened(s) for s in sums), prints])
            same = tf.reduce_all(prints == prints[0])
            check = tf.debugging.Assert(same, [mark("TNT_MISMATCH", OTHER_BATCH), prints], summarize=size)
            with tf.control_dependencies([check] if check is not None else []):
                of_all = [tf.cast(r, s.dtype) for r, s in zip(reduced, sums, strict=True)]
                self._new_metrics = [tf.identity(value) for value in state.with_metrics(of_all)]
        return self._new_metrics

    def _logs_of_all(self, logs_of_shards: list[Any], weights: list[tf.Tensor]) -> Any:
        """What the step returned, of the global batch: metrics by their states, other numbers as means over samples."""
        logs = logs_of_shards[-1]
        if not isinstance(logs, dict):
            return logs
        leaves = tf.nest.flatten(logs)
        others = [i for i, leaf in enumerate(leaves) if id(leaf) not in self._of_metrics and id(leaf) not in self._results]
        means = dict(zip(others, self._means_over_shards(logs_of_shards, others, weights), strict=True))
        state, noted = self._state_of_step(), dict(self._results)
        results: dict[int, list[Any]] = {}
        if any(id(leaf) in noted and id(leaf) not in self._of_metrics for leaf in leaves):
            of_model = lambda: adapter.metric_results(self._model)  # noqa: E731
            results = adapter.results_with(state.metrics, self._states_of_metrics(), of_model)
        of_all = []
        for i, leaf in enumerate(leaves):
            _, metric, place = noted.get(id(leaf), (None, None, 0))
            if i in means:
                of_all.append(means[i])
            else:
                of_all.append(leaf if id(leaf) in self._of_metrics else results[id(metric)][place])
        return tf.nest.pack_sequence_as(logs, of_all)

    def _means_over_shards(self, logs_of_shards: list[Any], places: list[int], weights: list[tf.Tensor]) -> list[tf.Tensor]:
        if not places:
            return []
        tree = TreeSum()
        for logs, weight in zip(logs_of_shards, weights, strict=True):
            leaves = tf.nest.flatten(logs)
            numbers = [tf.convert_to_tensor(leaves[i]) for i in places]
            tree.add([tf.cast(number, tf.float64) for number in numbers], weight)
        tensors, weight = tree.total()
        specs = [Spec(f"log {i}", int(np.prod(t.shape, dtype=np.int64)), "float64") for i, t in enumerate(tensors)]
        means = self._reducer(key_of(f"{len(specs)} logs", ()), (), specs).reduce(tensors, weight)
        return [tf.cast(mean, number.dtype) for mean, number in zip(means, numbers, strict=True)]


def _sum_type(dtype: str) -> str:
    """In which type elements are added up: sums that are rounded to 16 bits in between would depend on the number of ranks."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _widened(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, _sum_type(tensor.dtype.name))


def _after(tensors: Sequence[tf.Tensor], batch: Any) -> Any:
    """The batch, not before these are computed: of two shards at once, both would need memory for what backward needs."""
    if context.graph() is None or not tensors:
        return batch
    with tf.control_dependencies(tensors):
        return tf.nest.map_structure(tf.identity, batch, expand_composites=True)
