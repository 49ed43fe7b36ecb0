"""The hooks that make the steps of a Keras model distributed: attributes of the model, its optimizer, its losses and metrics.

They are installed while `fit`, `evaluate` or `predict` runs and removed afterwards, so that no saved file, clone or copy of the
model has them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import tensorflow as tf

from tarantella.keras import adapter, context
from tarantella.keras.data import gather, split
from tarantella.keras.lengths import agreement
from tarantella.keras.reduction import autotune
from tarantella.keras.reduction.autotune import Autotune
from tarantella.keras.reduction.bucket_hook import PackedBucket
from tarantella.keras.reduction.reducer import WIRE_DEFAULT
from tarantella.keras.reduction.registry import ReducerRegistry
from tarantella.keras.step import atomic, batch_sums, kept_state, keras_methods, losses, moving_statistics, noise, normalization
from tarantella.keras.step.accumulation import OptimizerHooks
from tarantella.keras.step.added_losses import AddedLosses
from tarantella.keras.step.current_step import CurrentStep
from tarantella.keras.step.gradient_reduction import GradientReduction
from tarantella.keras.step.metric_reduction import MetricReduction
from tarantella.keras.step.patch import Attribute, Patch
from tarantella.keras.step.traced_functions import TracedFunctions
from tarantella.keras.step.trainability import Trainability
from tarantella.keras.xla import operations
from tarantella.keras.xla.segments import CompiledCalls

_CALLS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")
_COUNTING = ("evaluate", "train_on_batch", "test_on_batch")  # add to the metrics of the epoch in which a callback calls them


class Sharding(Protocol):
    """Spreads the state of optimizers over ranks: `tarantella.keras.sharding`, as far as steps know it."""

    def hooks(self, optimizer: Any, hooks: Sequence[Attribute]) -> list[Attribute]:
        """All hooks of an optimizer, given those by which it gets reduced gradients."""

    def owners_of(self, variables: Sequence[Any]) -> Sequence[int]:
        """For variables, the ranks that need their reduced gradients in the optimizer; empty: all ranks do."""

    def served(self) -> AbstractContextManager[None]:
        """The context in which the master may read the state of other ranks, which answer."""


class StepHooks:
    """The distributed training and test steps of one compiled model.

    Args:
        reducers: all reducers of the model.
        step: the step that runs.
        gradients: reduces the gradients of its steps.
        metrics: brings its metrics together.
        on_renewal: is called when Keras was asked to make its functions anew, by what may have made weights.
        sharding: spreads the state of the model's optimizers over ranks; None if each rank holds all of it.

    Attributes:
        loss_kinds: how losses and gradients are made of those of a batch's parts, which trials find out.
        autotune: tries fusion thresholds while `fit` trains; None if it is not asked for.
        validation: runs in `fit` in the place of the model's `evaluate`; None: that does.
        observe_trace: is told of each trace of a training step of an elastic job (`atomic.atomic`).
        distributed: whether the ranks have parts of one batch. False: each rank has batches of its own, and the sizes of these
            are added up in each step.
    """

    holds_all_weights = True  # whether each rank does, not a part of them
    held_state: Any = None  # the variables in a checkpoint, if each rank holds some of the model's only (`PipelineState`)
    reproducible = False  # whether all ranks have the same state after each step, whatever their number

    def __init__(
        self,
        model: Any,
        reducers: ReducerRegistry,
        step: CurrentStep,
        gradients: GradientReduction,
        metrics: MetricReduction,
        *,
        on_renewal: Callable[[], None],
        sharding: Sharding | None = None,
    ) -> None:
        self.reducers = reducers
        self.gradients = gradients
        self.loss_kinds = step.loss_kinds
        self.autotune: Autotune | None = None
        self.validation: Callable[..., Any] | None = None
        self.distributed = True
        self.observe_trace: Callable[[Any, Sequence[Any]], None] | None = None
        self._added_losses = AddedLosses(model, step.loss_kinds)
        self._model = model
        self._step = step
        self.metrics = metrics
        self._on_renewal = on_renewal
        self._sharding = sharding
        self._prepared = False
        self._patch: Patch | None = None  # while hooks are installed
        self._drawing: set[str] = set()  # the names of layers that draw noise, as the log has them
        self._trainability = Trainability(model)
        self.functions = TracedFunctions(model, self._forget_plans)
        self._compiled = CompiledCalls(model, reducers.bucket_of) if adapter.is_jit_compiled(model) else None

    def prepare(self) -> None:
        """Makes a reducer of gradients if there is none: ranks whose models differ are found before any step. Collective."""
        variables = adapter.trainable_variables(self._model)
        if not self._prepared:
            self._prepared = True
            self.autotune = autotune.create(self.reducers, variables, self.gradients.awaits_reduction)
        self.reducers.prepare(variables, self.gradients.owners_of(variables))

    def set_distributed(self, distributed: bool) -> None:
        """Sets `distributed`. The steps are traced again if it changes."""
        if distributed != self.distributed:
            self.distributed = distributed
            self.functions.forget()
            if self.autotune is not None:
                self.autotune.forget_traces()

    @contextmanager
    def validating(self, validation: Callable[..., Any] | None) -> Iterator[None]:
        """Sets `validation` in this context."""
        self.validation = validation
        try:
            yield
        finally:
            self.validation = None

    @property
    def served(self) -> Callable[[], AbstractContextManager[None]] | None:
        """Gives the context in which the other ranks answer callbacks of the master; None if it holds all that these need."""
        return None if self._sharding is None else self._sharding.served

    # -------------------------------------------------------------------------------------------- installation

    @contextmanager
    def installed(self, datasets: Sequence[tf.data.Dataset]) -> Iterator[None]:
        """In this context the model has the hooks.

        datasets: the data of the method. Without it, this rank's part of a batch may be empty.
        """
        with self.functions.running(), self.suspended():  # a callback of `fit` may evaluate, for example
            self._step.may_be_empty = not datasets or any(map(split.may_be_empty, datasets))
            self._step.given = datasets
            self._apply(Patch(self._attributes()))
            try:
                yield
            finally:
                self._revert()
                self._step.given = ()

    def _attributes(self) -> list[Attribute]:
        model = self._model
        train_step = self._train_step(self.metrics.with_sums_scaled("train_step", model.train_step))

        def note_trace(graph: Any, early: Sequence[Any]) -> None:
            if self.observe_trace is not None:
                self.observe_trace(graph, early)

        return [
            *((model, name, self._local_call(name)) for name in _CALLS),
            (model, "train_step", atomic.atomic(self._trainability.kept(train_step), note_trace)),
            (model, "test_step", self._test_step(self.metrics.with_sums_scaled("test_step", model.test_step))),
            (model, "predict_step", self._predict_step(model.predict_step)),
            *self.metrics.hooks(),
            *normalization.hooks(model),
            *self._added_losses.hooks(self._step),
            *self._hooks_of_own_loss(),
            *adapter.loss_hooks(model, lambda loss: losses.across_ranks(loss, self._step)),
            *(hook for optimizer in adapter.held_optimizers(model) for hook in self._optimizer_hooks(optimizer)),
            *([] if self._compiled is None else self._compiled.functions()),
        ]

    def _hooks_of_own_loss(self) -> Iterator[Attribute]:
        sums, step = self._step.loss_kinds.own_by_sums, self._step
        if any(one.method == "compute_loss" for one in sums.values()):
            yield from batch_sums.hooks(
                self._model, "compute_loss", lambda: sums.get("train_step" if step.is_training else "test_step"), step
            )

    def _optimizer_hooks(self, optimizer: Any) -> list[Attribute]:
        hooks = OptimizerHooks(optimizer, self.gradients, self.reproducible).functions()
        scales = len(adapter.optimizers_of(optimizer)) > 1
        if scales and not self.reproducible and adapter.held_optimizers(self._model) == [optimizer]:
            name = adapter.scale_hook()  # with several optimizers, nobody knows for which of them a loss was scaled
            hooks.append((optimizer, name, self.gradients.with_weighted_loss(getattr(optimizer, name))))
        return hooks if self._sharding is None else self._sharding.hooks(optimizer, hooks)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """In this context the model is the plain one, also while it is trained."""
        data_state = self._step.may_be_empty, self._step.given
        if self._patch is None:
            yield
            return
        self._revert()
        try:
            yield
        finally:
            self._apply(Patch(self._attributes()))  # a trial may have found more
            self._step.may_be_empty, self._step.given = data_state

    def original(self, name: str) -> Callable[..., Any]:
        """A method of the plain model, whatever hooks are installed now."""
        with self.suspended():
            method: Callable[..., Any] = getattr(self._model, name)
        return method

    def _apply(self, patch: Patch) -> None:
        patch.apply()
        self.functions.swap(with_hooks=True)
        self._patch = patch

    def _revert(self) -> None:
        self.functions.swap(with_hooks=False)
        if self._patch is not None:
            self._patch.revert()
        self._patch = None

    def _forget_plans(self) -> None:
        self._on_renewal()
        self._trainability.forget()
        if self.autotune is not None:
            self.autotune.forget_traces()

    def _local_call(self, name: str) -> Callable[..., Any]:
        """A method of the model inside that a callback calls during a run: it uses the data given to it, on this rank alone."""
        original = getattr(self._model, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if adapter.is_validation_of_fit(kwargs):
                return (self.validation or original)(*args, **kwargs)
            is_local = not keras_methods.has_route(self._model, name)
            counts = name in _COUNTING and is_local and not self.reproducible
            with self.suspended(), self.metrics.counting_once() if counts else nullcontext():
                return original(*args, **kwargs)

        return call

    # --------------------------------------------------------------------------------------------------- steps

    @contextmanager
    def single_batch(self) -> Iterator[None]:
        """In this context Keras gets one batch with its share where it takes ``x``, as in `train_on_batch`."""
        self._step.is_single_batch = True
        try:
            yield
        finally:
            self._step.is_single_batch = False

    def _unpacked(self, element: Any) -> list[tuple[Any, split.Share]]:
        """The batch of each shard, as a training or test step of Keras gets it, and its share."""
        if not self._step.is_single_batch:
            return split.unpack(element)
        return [(adapter.batch_for_step(batch), share) for batch, share in split.unpack(adapter.unpack_batch(element))]

    @contextmanager
    def _running(self, share: split.Share, training: bool) -> Iterator[None]:
        """In this context the model computes its share of a batch."""
        self.metrics.begin_step()
        self._added_losses.begin_step()
        compiled = nullcontext() if self._compiled is None else self._compiled.step(training)
        with self._step.running(share, training), compiled, self.noise(), self._lengths(share):
            yield

    def _lengths(self, share: split.Share) -> AbstractContextManager[None]:
        """The context in which layers get the lengths of the whole batch, of which this is a part."""
        return agreement.on_its_own() if self._step.counts_alone() else agreement.by_ranks(share.samples)

    def noise(self) -> AbstractContextManager[None]:
        """The context in which a step draws its random numbers: each rank's own, or each shard's."""
        return noise.noise_by_shard() if self.reproducible else noise.noise_by_rank()

    def _train_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def train_step(element: Any) -> Any:
            ((batch, share),) = self._unpacked(element)
            with self._running(share, training=True), self._step.unchanged_if_empty(self._state_of_training()):
                sums = self._step.loss_kinds.own_by_sums.get("train_step")
                own_sums = batch_sums.in_own_step(self._model, "train_step", self._step, sums)
                kept = self._kept("train_step", self._step.weight)
                with noise.naming_layers(self._model, self._drawing), kept, own_sums, self.gradients.at_tapes():
                    logs = original(batch)
                logs = self.metrics.reduced_logs(logs)
                if (graph := context.graph()) is not None:
                    moving_statistics.note_unknown(self._model, graph)
                    if self.autotune is not None and not self.autotune.finished:
                        self.autotune.random_operations = operations.with_random_states(graph)
                return logs

        return train_step

    def _kept(self, name: str, weight: Callable[[], tf.Tensor]) -> AbstractContextManager[None]:
        """The context in which the step of this name computes, after which what it keeps is of the whole batch."""
        means, sums, _ = self._step.loss_kinds.kept(name)
        return kept_state.agreed(means, sums, weight)

    def _state_of_training(self) -> list[Any]:
        """The variables that a step changes on this rank alone, from its own samples.

        What a step makes of no samples at all, such as a moving average of weights, it makes alike on a rank without samples.
        """
        reduced = {id(variable) for variable in normalization.statistics(self._model)}
        averages = moving_statistics.batch_normalization_statistics(self._model)
        local = [variable for variable in averages if id(variable) not in reduced]
        return [*local, *adapter.metric_variables(self._model)]

    def _test_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def test_step(element: Any) -> Any:
            ((batch, share),) = self._unpacked(element)
            variables = adapter.metric_variables(self._model)
            with self._running(share, training=False), self._step.unchanged_if_empty(variables):
                sums = self._step.loss_kinds.own_by_sums.get("test_step")
                own_sums = batch_sums.in_own_step(self._model, "test_step", self._step, sums)
                alone = self._step.counts_alone()  # ranks may have different numbers of steps
                kept = nullcontext() if alone else self._kept("test_step", self._step.weight)
                with kept, own_sums:
                    logs = original(batch)
                return self.metrics.reduced_logs(logs)

        return test_step

    def _predict_step(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def predict_step(element: Any) -> Any:
            ((batch, share),) = split.unpack(adapter.unpack_batch(element) if self._step.is_single_batch else element)
            kept = nullcontext() if share.total is None else self._kept("predict_step", lambda: share.samples / share.total)
            # in shards it is not, in reproducible mode either
            with noise.noise_by_rank(), agreement.by_ranks(share.samples), kept:
                return gather.with_sizes(original(batch), share)

        return predict_step


def create_hooks(
    model: Any,
    *,
    gradient_dtype: str | None,
    bucket_hook: Callable[[PackedBucket], object] | None,
    fusion_threshold: float | None,
    observe_gradients: Callable[[list[Any], list[Any]], None],
    on_renewal: Callable[[], None],
    sharding: Sharding | None,
) -> StepHooks:
    """The hooks of a compiled model, with the options of `tnt.Model`.

    Args:
        observe_gradients: is given the reduced gradients and their variables, as the optimizer gets them.
        on_renewal, sharding: as `StepHooks` takes them.
    """
    wire_dtype = gradient_dtype or WIRE_DEFAULT
    reducers = ReducerRegistry(optimizer_names(model), wire_dtype, bucket_hook, fusion_threshold)
    step = CurrentStep()
    step.loss_kinds.may_use_sums = True
    gradients = GradientReduction(model, reducers, step, observe_gradients, None if sharding is None else sharding.owners_of)
    step.weight_of_gradients = gradients.weight
    metrics = MetricReduction(model, reducers, step)
    return StepHooks(model, reducers, step, gradients, metrics, on_renewal=on_renewal, sharding=sharding)


def optimizer_names(model: Any) -> str:
    """The classes of the model's optimizers; empty if it has none."""
    return ", ".join(type(optimizer).__name__ for optimizer in adapter.held_optimizers(model))
