"""`tnt.Model(model, reproducible=V)`: training whose bits do not depend on how many ranks there are.

The global batch is always cut into V shards. A rank runs the model's own training step on each of its shards, one after the
other, from the same state: trained variables are changed once, when all gradients are there; what else a step changes
(averages of BatchNormalization, metrics, random seeds) is put back before each shard, and what the shards made of it is brought
together at the end. All sums are taken in the tree of `shards`, so all ranks have the same state after each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import tensorflow as tf

from tarantella import environment, runtime, settings
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter, context
from tarantella.keras.adapter.tensorflow import converted_like_caller
from tarantella.keras.data import split
from tarantella.keras.reduction import gradients
from tarantella.keras.reduction.reducer import AS_THEY_ARE, Reducer, Spec
from tarantella.keras.reproducible import fingerprint
from tarantella.keras.reproducible.shard_state import ShardState, random_states, read
from tarantella.keras.reproducible.shards import TreeSum
from tarantella.keras.step import normalization
from tarantella.keras.step.hooks import StepHooks, key_of
from tarantella.keras.xla import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tarantella.keras.step.hooks import Key


def shards_of_batches(wished: Any, gradient_dtype: str | None, bucket_hook: Any) -> int | None:
    """Into how many shards each batch is cut, whatever the number of ranks; None: into one for each rank.

    Args:
        wished: what the user gave, None: as the environment says.
        gradient_dtype, bucket_hook: what else was given to `tnt.Model`.

    Raises:
        InvalidArgumentError: it is no power of two. UnsupportedError: it does not go with the others.
    """
    shards = settings.reproducible() if wished is None else wished
    if shards is None:
        return None
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1 or shards & (shards - 1):
        raise InvalidArgumentError(f"reproducible is {shards!r}: use the number of shards of a batch, a power of two such as 8")
    if gradient_dtype is not None or settings.gradient_dtype() != "none":
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
        self._gradients["wire_dtype"] = AS_THEY_ARE
        size = runtime.get_size()
        if shards % size:
            raise InvalidArgumentError(
                f"reproducible={shards} on {size} ranks: the number of ranks must divide the number of shards, as do "
                f"{', '.join(str(1 << i) for i in range(shards.bit_length()))}"
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
        self._division = split.Division.among(size, runtime.get_rank(), shards)
        self._state: ShardState | None = None
        self._is_last = False  # of this rank's shards in this step
        self._forget_step()
        self._divides = False  # whether a loss asked for what only all shards together tell
        self._divisors: list[tf.Tensor] | None = None  # of all shards, in the order in which losses ask for them
        self._seen_divisors: list[tf.Tensor] | None = None  # of this shard, while they are looked for
        self._n_divisors = 0

    def _forget_step(self) -> None:
        self._metric_sum = TreeSum()
        self._gradient_sums: list[TreeSum] | None = None  # one for each bucket
        self._new_metrics: list[tf.Tensor] | None = None
        self._of_metrics: dict[int, Any] = {}  # tensors that get_metrics_result gave in the last shard
        self._shards_gradients: list[tf.Tensor] = []
        self._reducer_of_step: Reducer | None = None
        self._applied = False
        self._operations_before_update: int | None = None  # in the graph, up to the end of the optimizer's step

    # ------------------------------------------------------------------------------------------------ reducers

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

    def _run(self, original: Callable[[Any], Any], shards: list[tuple[Any, split.Share]], training: bool) -> Any:
        state = self._state_of_step()
        self._forget_step()
        averages, compute = TreeSum(), _traced_once(self._computed(original, training))
        logs_of_shards: list[Any] = []
        weights: list[tf.Tensor] = []
        for place, (batch, share) in enumerate(shards):
            self._is_last = place == len(shards) - 1
            state.begin_shard(self._division.own[place])
            batch = _after(self._shards_gradients, batch)
            if not self._is_last:
                logs, self._shards_gradients, weight = compute(batch, share)
                self._add_gradients(weight)
                self._metric_sum.add(self._seen_by_metrics(share))
            else:
                self._begin_computing()
                with self._shard(share, training):
                    logs, weight = original(batch), self.weight()
                    self._refuse_reads_of_new_weights()
                    metrics = self._states_of_metrics()
                    logs_of_all = self._logs_of_all([*logs_of_shards, logs], [*weights, weight])
            logs_of_shards.append(logs)
            weights.append(weight)
            averages.add(state.changes(state.averages), weight)
        state.end(metrics, self._over_ranks("averages", state.averages, averages))
        if context.graph() is not None:
            self._refuse_random_operations(context.graph())
        return logs_of_all

    def _computed(self, original: Callable[[Any], Any], training: bool) -> Callable[[Any, split.Share], Any]:
        """What gives a shard's logs, gradients and weight. It changes state as the step does that it is made of."""

        def compute(batch: Any, share: split.Share) -> tuple[Any, list[tf.Tensor], tf.Tensor]:
            self._begin_computing()
            with self._shard(share, training):
                return original(batch), self._shards_gradients, self.weight()

        return compute

    def _begin_computing(self) -> None:
        self._applied, self._n_divisors, self._shards_gradients = False, 0, []

    def _state_of_step(self) -> ShardState:
        if self._state is None:
            raise RuntimeError("a step on shards has no state")
        return self._state

    def _refuse_random_operations(self, graph: Any) -> None:
        known = random_states(self._model)
        draws = [*operations.with_random_states(graph), *operations.draws_of_other_generators(graph, known)]
        if draws:
            raise UnsupportedError(
                f"reproducible: the step draws random numbers by {', '.join(draws)}, which depend on the calls before, "
                "and so on how many shards a rank has: use Keras' layers, or keras.random with a keras.random.SeedGenerator"
            )

    def _optimizer_functions(self, optimizer: Any) -> list[tuple[Any, str, Callable[..., Any]]]:
        def noted(apply: Callable[..., Any]) -> Callable[..., Any]:
            @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
            def apply_and_note(*args: Any, **kwargs: Any) -> Any:
                result = apply(*args, **kwargs)
                graph = context.graph()
                self._operations_before_update = None if graph is None else len(graph.get_operations())
                return result

            return cast("Callable[..., Any]", apply_and_note)

        return [(owner, name, noted(apply)) for owner, name, apply in super()._optimizer_functions(optimizer)]

    def _refuse_reads_of_new_weights(self) -> None:
        """The last of a rank's shards alone has them: which shard that is depends on the number of ranks."""
        graph, begin = context.graph(), self._operations_before_update
        if graph is None or begin is None:
            return
        optimizers = adapter.optimizers_of(adapter.optimizer_of(self._model))
        changed = [*adapter.trainable_variables(self._model), *(optimizer.iterations for optimizer in optimizers)]
        late = operations.used(graph, begin, changed)
        if late:
            raise UnsupportedError(
                f"reproducible: the training step uses {adapter.path(late[0])} after its optimizer step, which waits for all "
                "shards: do what needs new weights in a callback, in on_train_batch_end"
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
        self._shards_gradients = [_widened(gradients.dense(g, v)) for g, v in zip(grads, variables, strict=True)]
        self._reducer_of_step = reducer = self.gradient_reducer(variables, grads)
        if not self._is_last:
            return None
        sums = list(self._shards_gradients)
        for tree, bucket in zip(self._add_gradients(self.weight()), reducer.buckets, strict=True):
            total, weight = tree.total()
            for i, tensor in zip(bucket, total, strict=True):
                sums[i] = tensor
        reduced = zip(grads, reducer.reduce(sums, weight), variables, strict=True)
        result = [None if g is None else tf.cast(r, adapter.dtype_of(v)) for g, r, v in reduced]
        return fingerprint.noted(self._model, result, variables)

    def _add_gradients(self, weight: tf.Tensor) -> list[TreeSum]:
        """Those of the shard that was just computed, to the sums of each bucket."""
        buckets = [] if self._reducer_of_step is None else self._reducer_of_step.buckets  # a test has none
        if self._gradient_sums is None:
            self._gradient_sums = [TreeSum() for _ in buckets]
        for tree, bucket in zip(self._gradient_sums, buckets, strict=True):
            tree.add([self._shards_gradients[i] for i in bucket], weight)
        return self._gradient_sums

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
        self, original: Callable[[Any], Any], shards: list[tuple[Any, split.Share]], training: bool
    ) -> list[tf.Tensor]:
        def divisors(batch: Any, share: split.Share) -> list[tf.Tensor]:
            self._seen_divisors, self._applied, self._is_last = [], False, False
            with self._shard(share, training):
                original(batch)
            return self._seen_divisors

        tree, compute = TreeSum(), _traced_once(divisors)
        try:
            for place, (batch, share) in enumerate(shards):
                self._state_of_step().begin_shard(self._division.own[place])
                tree.add(compute(batch, share))
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

    def _seen_by_metrics(self, share: split.Share) -> list[tf.Tensor]:
        """What this shard has added to the metrics' states: nothing, if it has no sample."""
        states = [read(v) for v in self._state_of_step().metrics]
        return [tf.where(share.samples > 0, state, tf.zeros_like(state)) for state in states]

    def _states_of_metrics(self) -> list[tf.Tensor]:
        """The metrics' states after all shards; in the last one."""
        if self._new_metrics is None:
            state = self._state_of_step()
            self._metric_sum.add(self._seen_by_metrics(self._share_of_step()))
            sums, _ = self._metric_sum.total()
            of_all = self._summed_with_check(state.metrics, [_widened(s) for s in sums])
            self._new_metrics = state.with_metrics([tf.cast(r, s.dtype) for r, s in zip(of_all, sums, strict=True)])
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
        means = self._summed_logs(*tree.total())
        return [tf.cast(mean, number.dtype) for mean, number in zip(means, numbers, strict=True)]


def _sum_type(dtype: str) -> str:
    """In which type elements are added up: sums that are rounded to 16 bits in between would depend on the number of ranks."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _widened(tensor: tf.Tensor) -> tf.Tensor:
    return tf.cast(tensor, _sum_type(tensor.dtype.name))


def _traced_once(compute: Callable[[Any, split.Share], Any]) -> Callable[[Any, split.Share], Any]:
    """In a graph, a function that is traced for its first shard (and the first of each other shape) and called for all."""
    if context.graph() is None:
        return compute
    like_the_step = converted_like_caller(compute)
    traced: Callable[[Any, split.Share], Any] = tf.function(like_the_step, autograph=False, jit_compile=False)
    return traced


def _after(tensors: Sequence[tf.Tensor], batch: Any) -> Any:
    """The batch, not before these are computed: of two shards at once, both would need memory for what backward needs."""
    if context.graph() is None or not tensors:
        return batch
    with tf.control_dependencies(tensors):
        return tf.nest.map_structure(tf.identity, batch, expand_composites=True)
