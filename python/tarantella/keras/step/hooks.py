"""What happens inside a training step: gradients and metric states are summed over ranks where Keras would just use them.

The hooks are attributes of the model and of its optimizer that are there while `fit` or `evaluate` runs and gone after:
nothing of them gets into a saved file, a clone or a copy.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime, settings
from tarantella.errors import UnsupportedError, mark
from tarantella.keras import adapter, context
from tarantella.keras.data import gather, split
from tarantella.keras.reduction import autotune, gradient_order, gradients, statistics, weights
from tarantella.keras.reduction.reducer import AS_THE_ENVIRONMENT_SAYS, Reducer, Spec
from tarantella.keras.reduction.sparse import SparseReducer
from tarantella.keras.reproducible import fingerprint
from tarantella.keras.step import accumulation, losses, normalization
from tarantella.keras.step.accumulation import OptimizerHooks
from tarantella.keras.step.patch import Patch
from tarantella.keras.xla import operations
from tarantella.keras.xla.segments import CompiledCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tarantella.keras.reduction.autotune import Autotune
    from tarantella.keras.reduction.bucket_hook import PackedBucket

_OTHER_BATCH = (
    "the ranks took parts of different batches in this step: every rank must build the same dataset in the same order "
    "(give a seed to whatever is random in it: shuffle, map, the generator of NumPy)"
)

_CALLS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
_UNTRACED = (None, None, None)


class Key(NamedTuple):
    """Of a reducer."""

    name: str
    of: tuple[int, ...]
    fusion_threshold: float | None  # of gradients: None as for all


def key_of(name: str, of: Sequence[Any], fusion_threshold: float | None = None) -> Key:
    """What a reducer is kept under: its name, the objects it is for, and the threshold of its buckets."""
    return Key(name, tuple(id(item) for item in of), fusion_threshold)


class StepHooks:
    """The distributed training and test steps of one compiled model."""

    reproducible = False  # whether all ranks have the same state after each step, whatever their number

    def __init__(
        self,
        model: Any,
        gradient_dtype: str | None = None,
        bucket_hook: Callable[[PackedBucket], object] | None = None,
        fusion_threshold: float | None = None,
    ) -> None:
        self._model = model
        self._gradients: dict[str, Any] = {
            "wire_dtype": gradient_dtype or AS_THE_ENVIRONMENT_SAYS,
            "bucket_hook": bucket_hook,
        }
        self.fusion_threshold = fusion_threshold  # of the step that is being traced or run eagerly
        self.autotune: Autotune | None = None
        self.random_operations: list[str] = []  # of the last step that was traced, while thresholds are tried
        self._begun = False
        self._stats_of_dropped = dict(statistics.NOTHING)
        self._reducers: dict[Key, tuple[Reducer | SparseReducer, list[Any]]] = {}
        self._provisional: Key | None = None  # of the reducer that was made before any gradient was seen
        self._share: split.Share | None = None  # of the step that is being traced or run eagerly
        self._training = False
        self._asked_for_metrics = False
        self._total_of_step: tf.Tensor | None = None
        self._results: dict[int, tuple[Any, Any, int]] = {}  # tensors that metrics gave in this step
        self._may_be_empty = True
        self._patch: Patch | None = None  # while hooks are installed
        self._one_batch = False
        # Keras' traced steps with our hooks in them; those of the plain model, while hooks are installed
        self._functions: tuple[Any, ...] = _UNTRACED
        self.alike = False  # whether all ranks have been given rank 0's state
        self.apart = False  # whether single steps left what is averaged or added up over ranks at the end of an epoch
        self._compiled = CompiledCalls(model, self.bucket_of) if adapter.is_jit_compiled(model) else None

    # ------------------------------------------------------------------------------------------------ reducers

    def prepare(self) -> None:
        """Makes a reducer of gradients if there is none: models that differ are noticed before the first step. Collective."""
        if not self._begun:
            self._begun = True
            self.autotune = autotune.begin(self, self._model)
        if not any(reducer.name == "gradients" for reducer in self.reducers()):
            variables = adapter.trainable_variables(self._model)
            self._provisional = key_of("gradients", variables, self.fusion_threshold)
            self._gradient_reducer(self._provisional, variables)

    def gradient_reducer(self, variables: Sequence[Any], grads: Sequence[Any]) -> Reducer:
        """The reducer for these variables' gradients. Collective when it is asked for the first time.

        What was prepared is for the usual order of arrival and for dense gradients. Where the first trace shows something else,
        the final one takes its place before anything was reduced.
        """
        key = key_of("gradients", variables, self.fusion_threshold)
        if self._provisional is None and key in self._reducers:
            return cast("Reducer", self._reducers[key][0])
        order = gradient_order.agreed_order(grads)
        if key == self._provisional and order == gradient_order.usual_order(len(order)):
            self._provisional = None
        self._drop_provisional()
        return self._gradient_reducer(key, variables, order)

    def _drop_provisional(self) -> None:
        if self._provisional is not None:
            runtime.logger.info("the plan changes: the traced step makes the gradients in another order, or some as rows")
            self._reducers.pop(self._provisional)[0].close()
            self._provisional = None

    def _gradient_reducer(self, key: Key, variables: Sequence[Any], order: Sequence[int] | None = None) -> Reducer:
        options = {**self._gradients, "fusion_threshold": key.fusion_threshold, "arrival": order}
        return self._reducer(key, variables, gradients.specs(variables), gradients=True, **options)

    # ------------------------------------------------------------------------------------- plans that are tried

    def add_plan(self, threshold: float) -> None:
        """Makes reducers like those of the gradients, with another threshold. Collective."""
        for key, (reducer, variables) in list(self._gradient_reducers()):
            self._gradient_reducer(key._replace(fusion_threshold=threshold), variables, reducer.arrival)

    def drop_plan(self, threshold: float | None) -> None:
        """Closes the reducers of a threshold. What they have done still counts."""
        for key, (reducer, _) in list(self._gradient_reducers(threshold)):
            for name, value in reducer.stats().items():
                self._stats_of_dropped[name] += value
            reducer.close()
            del self._reducers[key]

    def plan(self) -> list[str]:
        """A line for each bucket of gradients."""
        return [line for _, (reducer, _) in self._gradient_reducers(self.fusion_threshold) for line in reducer.descriptions]

    def buckets(self, threshold: float | None = None) -> list[list[list[int]]]:
        """Which gradients lie together, of each reducer of this threshold (None: the one that is chosen as for all)."""
        return [reducer.buckets for _, (reducer, _) in self._gradient_reducers(threshold)]

    def threshold_in_use(self, threshold: float | None = None) -> int:
        """The threshold in bytes, also where it was chosen."""
        return max(reducer.fusion_threshold for _, (reducer, _) in self._gradient_reducers(threshold))

    def _gradient_reducers(self, threshold: float | None = None) -> Iterator[tuple[Key, tuple[Reducer, list[Any]]]]:
        for key, (reducer, variables) in self._reducers.items():
            if isinstance(reducer, Reducer) and key.name == "gradients" and key.fusion_threshold == threshold:
                yield key, (reducer, variables)

    def has_bucket_hook(self) -> bool:
        """Whether a function of the user's sees the buckets."""
        return self._gradients["bucket_hook"] is not None

    def wire_dtype(self) -> str:
        """In which gradients are sent, ``"none"`` for as they are."""
        given = self._gradients["wire_dtype"]
        return given if isinstance(given, str) else settings.gradient_dtype()

    def stats(self) -> dict[str, float]:
        """What the reducers of gradients have done."""
        total = dict(self._stats_of_dropped)
        for reducer in self.reducers():
            if reducer.name == "gradients":
                total = {name: total[name] + value for name, value in reducer.stats().items()}
        return total

    def bucket_of(self) -> dict[int, int]:
        """In which bucket the gradient of each variable is, by the variable's id."""
        return {
            id(variables[i]): number
            for _, (reducer, variables) in self._gradient_reducers(self.fusion_threshold)
            for number, bucket in enumerate(reducer.buckets)
            for i in bucket
        }

    def sparse_reducer(self, variables: Sequence[Any]) -> SparseReducer:
        """The reducer for those gradients that are sparse. Collective when it is asked for the first time."""
        self._drop_provisional()
        key = key_of("sparse gradients", variables)
        if key not in self._reducers:
            self._reducers[key] = (SparseReducer(variables, self._context()), list(variables))
        return cast("SparseReducer", self._reducers[key][0])

    def _context(self) -> str:
        optimizer = adapter.optimizer_of(self._model)
        return "" if optimizer is None else type(optimizer).__name__

    def _reducer(self, key: Key, of: Sequence[Any], specs: Sequence[Spec], **options: Any) -> Reducer:
        if key not in self._reducers:
            reducer = Reducer(key.name, specs, self._context(), **options)
            self._reducers[key] = (reducer, list(of))  # what the key is made of must stay alive
        return cast("Reducer", self._reducers[key][0])

    def reducers(self) -> list[Reducer | SparseReducer]:
        """All reducers made so far."""
        return [reducer for reducer, _ in self._reducers.values()]

    def hook_error(self) -> Exception | None:
        """What the user's bucket hook has raised on this rank, if it has."""
        errors = (r.hook.error for r in self.reducers() if isinstance(r, Reducer) and r.hook is not None)
        return next((error for error in errors if error is not None), None)

    def gradient_steps(self) -> Iterator[tuple[Any, int]]:
        """Each variable of a reducer of gradients, and how often its gradient was reduced."""
        for reducer, variables in self._reducers.values():
            if reducer.name == "gradients":
                yield from ((variable, reducer.tensor_steps(i)) for i, variable in enumerate(variables))

    def close(self) -> None:
        """Stops the reducers."""
        for reducer in self.reducers():
            reducer.close()
        self._reducers.clear()

    # --------------------------------------------------------------------------------------------------- hooks

    @contextmanager
    def installed(self, may_be_empty: bool) -> Iterator[None]:
        """Puts the hooks onto the model and its optimizer, and takes them off again.

        may_be_empty: whether this rank's part of a batch may have no sample.
        """
        model = self._model
        with self.suspended():  # a callback of fit may evaluate, for one
            attributes = [
                *((model, name, self._plainly(name)) for name in _CALLS),
                (model, "train_step", self._train_step(model.train_step)),
                (model, "test_step", self._test_step(model.test_step)),
                (model, "predict_step", self._predict_step(model.predict_step)),
                (model, "get_metrics_result", self._metrics_result(model.get_metrics_result)),
                *((m, "update_state", self._mean_of_batches(m.update_state)) for m in adapter.means(model)),
                *((m, "result", self._noted_result(m, m.result)) for m in model.metrics),
                *normalization.hooks(model),
                *adapter.loss_hooks(model, lambda loss: losses.across_ranks(loss, self)),
            ]
            optimizer = adapter.optimizer_of(model)
            if optimizer is not None:
                attributes.extend(self._optimizer_functions(optimizer))
            if self._compiled is not None:
                attributes.extend(self._compiled.functions())
            self._put_on(Patch(attributes), may_be_empty)
            try:
                yield
            finally:
                self._take_off()

    def _optimizer_functions(self, optimizer: Any) -> list[tuple[Any, str, Callable[..., Any]]]:
        return OptimizerHooks(optimizer, self, self.reproducible).functions()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """In this context the model is the plain one, also while it is trained."""
        patch, may_be_empty = self._patch, self._may_be_empty
        if patch is None:
            yield
            return
        self._take_off()
        try:
            yield
        finally:
            self._put_on(patch, may_be_empty)

    def original(self, name: str) -> Callable[..., Any]:
        """A method of the plain model, whatever hooks are installed now."""
        with self.suspended():
            method: Callable[..., Any] = getattr(self._model, name)
        return method

    def _put_on(self, patch: Patch, may_be_empty: bool) -> None:
        patch.put_on()
        self._functions = adapter.swap_functions(self._model, self._functions)
        self._patch, self._may_be_empty = patch, may_be_empty

    def _take_off(self) -> None:
        self._functions = adapter.swap_functions(self._model, self._functions)
        if self._patch is not None:
            self._patch.take_off()
        self._patch = None

    def _plainly(self, name: str) -> Callable[..., Any]:
        """A method of the model inside that a callback calls during a run: on the data it gives, on this rank alone."""
        original = getattr(self._model, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if adapter.is_validation_of_fit(kwargs):
                return original(*args, **kwargs)
            with self.suspended():
                return original(*args, **kwargs)

        return call

    @contextmanager
    def one_batch(self) -> Iterator[None]:
        """In this context Keras gets one batch with its share where it takes ``x``, as in `train_on_batch`."""
        self._one_batch = True
        try:
            yield
        finally:
            self._one_batch = False

    def _unpacked(self, element: Any) -> list[tuple[Any, split.Share]]:
        return split.unpack(adapter.part_of(element) if self._one_batch else element)

    def _predict_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def predict_step(element: Any) -> Any:
            ((batch, share),) = self._unpacked(element)
            return gather.with_sizes(original(batch), share)

        return predict_step

    def _train_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def train_step(element: Any) -> Any:
            ((batch, share),) = self._unpacked(element)
            with self._shard(share, training=True), self._unchanged_if_empty(self._state_of_training()):
                logs = self._reduced_logs(original(batch))
                if self.autotune is not None and not self.autotune.finished and context.graph() is not None:
                    self.random_operations = operations.with_random_states(context.graph())
                return logs

        return train_step

    def _test_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def test_step(element: Any) -> Any:
            ((batch, share),) = self._unpacked(element)
            variables = adapter.metric_variables(self._model)
            with self._shard(share, training=False), self._unchanged_if_empty(variables):
                return self._reduced_logs(original(batch))

        return test_step

    @contextmanager
    def _shard(self, share: split.Share, training: bool) -> Iterator[None]:
        """In this context the model computes what it has of a batch."""
        self._share = share
        self._training = training
        self._asked_for_metrics = False
        self._total_of_step = None
        self._results = {}
        try:
            compiled = self._compiled.step(training) if self._compiled is not None else nullcontext()
            with context.model_step(), context.weighted(self.weight), compiled:
                yield
        finally:
            self._share = None
            self._training = False

    def _metrics_result(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def get_metrics_result() -> Any:
            variables = adapter.metric_variables(self._model)
            self._asked_for_metrics = True
            if self._training:
                return adapter.results_with(variables, self._reduced_in_step(variables), original)
            if self._share is not None:  # a test step: reduced when all batches have been seen
                return original()
            sums = collectives.all_reduce_each([np.asarray(adapter.unwrap(v).numpy()) for v in variables])
            return adapter.results_with(variables, [tf.convert_to_tensor(s) for s in sums], original)

        return get_metrics_result

    # ----------------------------------------------------------------------------------------------- gradients

    def reduce_gradients(self, grads: list[Any], variables: list[Any], weight: Any = None) -> list[Any] | None:
        """The gradients of the global batch. A variable without a gradient keeps none."""
        reduced = gradients.reduce(grads, variables, self.weight() if weight is None else weight, self)
        return fingerprint.noted(self._model, reduced, variables)

    def weight(self) -> tf.Tensor:
        """This rank's part of the global batch: the loss is a mean over samples, so the mean over all is their weighted sum."""
        share = self._share
        if share is None:
            raise UnsupportedError("an optimizer step outside of the model's training step is not supported yet")
        samples = tf.cast(share.samples, tf.float64)
        return samples if self.counts_alone() else samples / tf.cast(self._total(share), tf.float64)

    def counts_alone(self) -> bool:
        """Whether this rank evaluates data of its own: ranks may have other numbers of batches, which count by samples."""
        return not self._training and self._share is not None and self._share.total is None

    def all_true(self, flag: tf.Tensor) -> tf.Tensor:
        """Whether the flag is true on all ranks."""
        reducer = self._reducer(key_of("finite", ()), (), [Spec("ranks whose gradients are finite", 1, "int32")])
        return tf.equal(reducer.total(flag), runtime.get_size())

    def settle(self) -> None:
        """Brings together what steps of `train_on_batch` left on each rank, as the end of an epoch does. Collective."""
        if self.apart:
            weights.average(adapter.moving_statistics(self._model))
            accumulation.collect_sums(self._model.optimizer)
            self.apart = False

    def divisor_of_all(self, divisor: tf.Tensor) -> tf.Tensor:
        """The sum over ranks of what each rank's loss divides by."""
        return self._reducer(key_of("divisor of a loss", ()), (), [Spec("divisor", 1, "float64")]).total(divisor)

    def awaits_reduction(self) -> bool:
        """Whether no step was due yet to reduce gradients: an optimizer adds them up, or left a step out, before its first."""
        if accumulation.awaits_reduction(self._model.optimizer):
            return True
        left_out = adapter.accumulating(self._model.optimizer) not in (None, self._model.optimizer)
        return left_out and not any(steps for _, steps in self.gradient_steps()) and self._asked("finite")

    def _asked(self, name: str) -> bool:
        return any(reducer.name == name and reducer.tensor_steps(0) > 0 for reducer in self.reducers())

    def _total(self, share: split.Share) -> tf.Tensor:
        if share.total is not None:
            return share.total
        if self._total_of_step is None:  # one sum in a step, however many ask for it
            reducer = self._reducer(key_of("samples", ()), (), [Spec("samples", 1, "int64")])
            self._total_of_step = reducer.total(share.samples)
        return self._total_of_step

    distributed = True

    def set_distributed(self, distributed: bool) -> None:
        """Whether the ranks have parts of one batch, or batches of their own whose sizes must be added up in each step."""
        if distributed != self.distributed:
            self.distributed = distributed
            self._functions = _UNTRACED

    # ------------------------------------------------------------------------------------------------- metrics

    def _mean_of_batches(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Where one number is given for a batch, such as an output's loss, a rank counts by its part of the batch."""

        def update_state(values: Any, sample_weight: Any = None) -> Any:
            if sample_weight is None and self._share is not None and tf.convert_to_tensor(values).shape.rank == 0:
                sample_weight = tf.cast(self.weight(), tf.float32)
            return original(values, sample_weight=sample_weight)

        return update_state

    def _noted_result(self, metric: Any, original: Callable[[], Any]) -> Callable[[], Any]:
        """Remembers which tensors are results of the metric, to know them in the logs of a step of the user's own."""

        def result() -> Any:
            value = original()
            for place, leaf in enumerate(tf.nest.flatten(value)):
                self._results[id(leaf)] = (leaf, metric, place)  # the leaf is kept: its id must not be another's
            return value

        return result

    def _reduced_logs(self, logs: Any) -> Any:
        """What a step of the user's own returned, of the global batch: metrics by their states, other numbers as means."""
        if self._asked_for_metrics or not isinstance(logs, dict):
            return logs
        variables, noted = adapter.metric_variables(self._model), dict(self._results)
        sums = self._reduced_in_step(variables)
        results = adapter.results_with(variables, sums, lambda: adapter.metric_results(self._model))
        leaves = tf.nest.flatten(logs)
        means = iter(self._means([leaf for leaf in leaves if id(leaf) not in noted]))
        reduced = []
        for leaf in leaves:
            _, metric, place = noted.get(id(leaf), (None, None, 0))
            reduced.append(next(means) if metric is None else results[id(metric)][place])
        return tf.nest.pack_sequence_as(logs, reduced)

    def _means(self, values: list[Any]) -> list[tf.Tensor]:
        """Each number's mean over the samples of all ranks."""
        if not values:
            return []
        tensors = [tf.convert_to_tensor(value) for value in values]
        means = self._summed_logs([tf.cast(t, tf.float64) for t in tensors], self.weight())
        return [tf.cast(mean, t.dtype) for mean, t in zip(means, tensors, strict=True)]

    def _summed_logs(self, numbers: Sequence[tf.Tensor], weight: Any) -> list[tf.Tensor]:
        """The sums over ranks of ``weight * number``, float64."""
        specs = [Spec(f"log {i}", int(np.prod(n.shape, dtype=np.int64)), "float64") for i, n in enumerate(numbers)]
        return self._reducer(key_of(f"{len(specs)} logs", ()), (), specs).reduce(numbers, weight)

    def _reduced_in_step(self, variables: list[Any]) -> list[tf.Tensor]:
        """The metrics' states summed over ranks."""
        return self._summed_with_check(variables, self._empty_ranks_unchanged(variables))

    def _share_of_step(self) -> split.Share:
        if self._share is None:
            raise RuntimeError("a step has no share of a batch")
        return self._share

    def _summed_with_check(self, variables: list[Any], states: Sequence[Any]) -> list[tf.Tensor]:
        """States of metrics summed over ranks, in one bucket together with the check that all ranks saw one batch."""
        share, specs = self._share_of_step(), gradients.specs(variables)
        size, rank = runtime.get_size(), runtime.get_rank()
        fingerprints = tf.one_hot(rank, size, on_value=share.fingerprint, off_value=tf.constant(0, tf.int64), dtype=tf.int64)
        specs.append(Spec("fingerprint of the batch", size, "int64"))
        reducer = self._reducer(key_of("metrics", variables), variables, specs)
        *sums, fingerprints = reducer.reduce([*states, fingerprints])
        same = tf.reduce_all(fingerprints == fingerprints[0])
        check = tf.debugging.Assert(same, [mark("TNT_MISMATCH", _OTHER_BATCH), fingerprints], summarize=size)
        with tf.control_dependencies([check] if check is not None else []):
            return [tf.identity(s) for s in sums]

    # ------------------------------------------------------------------------- ranks without a sample in this step

    def _state_of_training(self) -> list[Any]:
        of_all_ranks = {id(variable) for variable in normalization.statistics(self._model)}
        local = [variable for variable in adapter.moving_statistics(self._model) if id(variable) not in of_all_ranks]
        return [*local, *adapter.metric_variables(self._model)]

    _before: dict[int, tf.Tensor]

    @contextmanager
    def _unchanged_if_empty(self, variables: list[Any]) -> Iterator[None]:
        """A rank without a sample runs the step on one that does not count: what the step changes here is put back."""
        self._before = {}
        if not self._may_be_empty:
            yield
            return
        self._before = {id(v): adapter.unwrap(v).read_value() for v in variables}
        yield
        self._put_back([v for v in variables if id(v) in self._before])

    def _empty_ranks_unchanged(self, variables: list[Any]) -> list[tf.Tensor]:
        self._put_back([v for v in variables if id(v) in self._before])
        return [adapter.unwrap(v).read_value() for v in variables]

    def _put_back(self, variables: list[Any]) -> None:
        share = self._share
        if share is None or not variables:
            return
        before = [self._before.pop(id(v)) for v in variables]

        def restore() -> tf.Tensor:
            for variable, value in zip(variables, before, strict=True):
                adapter.unwrap(variable).assign(value)
            return tf.constant(True)

        tf.cond(share.samples > 0, lambda: tf.constant(True), restore)
