"""The Keras model inside a `tnt.Model`, with its options, its hooks and the state that all ranks share."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import tensorflow as tf

from tarantella import collectives, generations, recovery, runtime, settings
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter, context, files
from tarantella.keras.callback_placement import placement
from tarantella.keras.data import split
from tarantella.keras.drivers.likeness import Likeness
from tarantella.keras.elastic import whole_calls
from tarantella.keras.loops import optimizers
from tarantella.keras.reduction import ops, statistics, weights
from tarantella.keras.reduction.bucket_hook import PackedBucket
from tarantella.keras.reduction.reducer import check_all
from tarantella.keras.reproducible import fingerprint, options, shard_state
from tarantella.keras.reproducible.fingerprint import View
from tarantella.keras.reproducible.step import ReproducibleHooks
from tarantella.keras.sharding import ServedCallbacks, ShardedOptimizers, refuse_shared_out
from tarantella.keras.step import accumulation, configuration, losses, noise, unwrapped_models
from tarantella.keras.step.hooks import StepHooks, create_hooks
from tarantella.keras.trial.again import Again
from tarantella.keras.trial.trials import Trials
from tarantella.keras.trial.verdict import Answer


class Options(NamedTuple):
    """How the gradients of a model are reduced: the arguments of `tnt.Model`, in their order."""

    gradient_dtype: str | None
    bucket_hook: Callable[[PackedBucket], object] | None
    fusion_threshold: float | None
    reproducible: int | None
    across_ranks: bool
    accept_approximate: bool
    shard_optimizer: bool | None = None
    samples: str | None = None

    def checked(self) -> "Options":
        """The options, completed from the environment.

        Raises:
            InvalidArgumentError, TypeError, UnsupportedError: an option is wrong, or does not go with another.
        """
        if self.gradient_dtype not in (None, "bfloat16", "float16"):
            raise InvalidArgumentError(f"gradient_dtype is {self.gradient_dtype!r}: use 'bfloat16', 'float16' or None")
        if self.bucket_hook is not None and not callable(self.bucket_hook):
            raise TypeError(f"bucket_hook is {self.bucket_hook!r}: use a function of a tnt.PackedBucket")
        threshold = self.fusion_threshold
        if threshold is not None and not (isinstance(threshold, (int, float)) and threshold >= 0):
            raise InvalidArgumentError(f"fusion_threshold is {threshold!r}: use a number of bytes, 0, math.inf or None")
        shard_optimizer = settings.shard_optimizer() if self.shard_optimizer is None else self.shard_optimizer
        flags = {"across_ranks": self.across_ranks, "accept_approximate": self.accept_approximate}
        for name, flag in {**flags, "shard_optimizer": shard_optimizer}.items():
            if not isinstance(flag, bool):
                raise TypeError(f"{name} is {flag!r}: use True or False")
        if self.samples not in (None, "independent"):
            raise InvalidArgumentError(f"samples is {self.samples!r}: use 'independent' or None")
        shards = options.number_of_shards(self.reproducible, self.gradient_dtype, self.bucket_hook)
        if shards is not None and self.across_ranks:
            raise UnsupportedError(
                "reproducible and across_ranks cannot go together: a rank computes its shards of a batch one after the other, "
                "and a loss of all samples needs them at once"
            )
        if shard_optimizer and not adapter.CAN_SHARD_OPTIMIZERS:
            raise UnsupportedError(
                "shard_optimizer (TNT_SHARD_OPTIMIZER) needs Keras 3: unset TF_USE_LEGACY_KERAS, or train without it"
            )
        return self._replace(reproducible=shards, shard_optimizer=shard_optimizer)

    def keywords(self) -> dict[str, Any]:
        """The options, as `tnt.Model` takes them."""
        return self._asdict()


class DistributedModel:
    """A Keras model that is trained on all ranks.

    Args:
        keras_model: the model. It is used, not copied.
        options: checked ones.

    Attributes:
        hooks: those that Keras' methods run with; None before they are needed (`open_hooks`).
        sharding: of the compiled model's optimizers over ranks, if that is asked for; made with the hooks.
        trials: of the compiled model, made with the hooks; None if there shall be none.
    """

    def __init__(self, keras_model: Any, options: Options) -> None:
        self.keras_model = keras_model
        self.options = options
        self.hooks: StepHooks | None = None
        self.sharding: ShardedOptimizers | None = None
        self.trials: Trials | None = None
        self._again = Again()
        self._compared: Any = None  # the hooks with which the ranks' configurations were found to be the same
        self.likeness = Likeness(keras_model)

    @property
    def shards(self) -> int | None:
        """The number of shards of each batch; None if there is one for each rank."""
        return self.options.reproducible

    def keywords(self) -> dict[str, Any]:
        """The options, as `tnt.Model` takes them."""
        return self.options.keywords()

    def refuse_unsupported(self, callbacks: Any) -> None:
        """Raises if one of the callbacks, as Keras takes them, cannot run in `fit`."""
        placement.refuse_unsupported(callbacks, bool(self.options.shard_optimizer))

    @property
    def division(self) -> int | split.Division | None:
        """How batches are cut, as `GlobalBatches.parts` takes it."""
        return self.shards

    @property
    def is_plain(self) -> bool:
        """Whether Keras' own methods do everything, because there is one rank."""
        return runtime.get_size() == 1 and self.shards is None and not generations.is_elastic()

    # ----------------------------------------------------------------------------------------------- hooks

    def open_hooks(self) -> StepHooks:
        """The hooks, which are made if there are none."""
        recovery.refuse("a method of tnt.Model that communicates")
        if self.hooks is None:
            refuse_stateful_layers(self.keras_model)
            observe, sharding = functools.partial(fingerprint.record_gradients, self.keras_model), None
            if self.options.shard_optimizer and runtime.get_size() > 1:
                sharding = ShardedOptimizers(self.keras_model, self.shards is not None)
            if self.shards is None:
                self.hooks = create_hooks(
                    self.keras_model,
                    gradient_dtype=self.options.gradient_dtype,
                    bucket_hook=self.options.bucket_hook,
                    fusion_threshold=self.options.fusion_threshold,
                    observe_gradients=observe,
                    on_renewal=self.likeness.forget_start,
                    sharding=sharding,
                )
            else:
                self.hooks = ReproducibleHooks(
                    self.keras_model,
                    self.shards,
                    fusion_threshold=self.options.fusion_threshold,
                    observe_gradients=observe,
                    on_renewal=self.likeness.forget_start,
                    sharding=sharding,
                )
            self.sharding = sharding
            self.trials = self._new_trials(self.hooks)
        return self.hooks

    def _new_trials(self, hooks: StepHooks) -> Trials | None:
        if self.options.samples == "independent" or settings.trials() == "off" or self.is_plain:
            return None
        self._again = Again()
        answer = Answer(self.options.across_ranks, self.options.accept_approximate)
        return Trials(self.keras_model, hooks.loss_kinds, hooks.reproducible, answer)

    @property
    def view(self) -> View | None:
        """What this rank holds of the model's variables; None: all of them."""
        return None

    def stats(self) -> dict[str, float]:
        """The statistics of the reducers on this rank."""
        return dict(statistics.NO_STATS) if self.hooks is None else self.hooks.reducers.stats()

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """The model is compiled in this context. The hooks end: they belong to the optimizer and losses from before."""
        if self.hooks is not None:
            self.hooks.reducers.close()
            self.hooks = self.sharding = None
            self.likeness.forget_start()
            self.likeness.end_single_steps(bring_together=False)
        if self.is_plain:
            yield
            return
        text = 'jit_compile="auto" leaves XLA off on several ranks: compile the model with jit_compile=True to use it'
        with adapter.jit_only_on_request(self.keras_model, lambda: runtime.logger.warning(text)):
            yield

    @contextmanager
    def running(self, datasets: Sequence[tf.data.Dataset | None] = (None,)) -> Iterator[None]:
        """A method of Keras runs in this context, with the hooks. Errors that come out of a graph are Tarantella's own again.

        datasets: the data of the method. Without it, this rank's part of a batch may be empty.
        """
        hooks, given = self.open_hooks(), [dataset for dataset in datasets if dataset is not None]
        with unwrapped_models.internal_call(), hooks.installed(given), ops.translated_errors(hooks.reducers.hook_error):
            yield

    # ------------------------------------------------------------------------------------------ the shared state

    def require_compiled(self, method: str) -> None:
        """Raises if the model cannot be trained or evaluated as it was compiled."""
        if not adapter.is_compiled(self.keras_model):
            raise RuntimeError(f"the model must be compiled before {method}: call tnt.Model.compile")
        losses.refuse_unreduced(self.keras_model)
        for name, optimizer in adapter.named_optimizers(self.keras_model).items():
            if optimizers.is_distributed(optimizer):
                raise UnsupportedError(
                    f"{name} of the model is an optimizer of tnt.optimizers.Optimizer, and tnt.Model reduces gradients itself: "
                    "give the model the plain optimizer"
                )

    def require_same(self, always: bool = False) -> None:
        """Compares the configurations of the ranks' models, always or once since `compile`. Collective."""
        hooks = self.open_hooks()
        if always or self._compared is not hooks:
            configuration.require_same(self.keras_model, again=self._compared is hooks)
            self._compared = hooks

    def build(self, batch_spec: Any, step: str = "train_step") -> None:
        """Makes all variables of the compiled model.

        step: the method that is to run on such batches, ``"train_step"`` or ``"test_step"``.
        """
        self.open_hooks()
        building = nullcontext() if self.sharding is None else self.sharding.building()
        with context.applying(), building:
            adapter.build(self.keras_model, batch_spec, step)

    def before_data(self, batch_spec: Any, steps: Sequence[str], is_divided: bool) -> None:
        """What must be known before these steps get data. Collective."""

    def look_at_whole(self, batch: Any, steps: Sequence[str]) -> None:
        """Tries the losses of these steps on a batch that cannot be cut, if they were not tried yet. Collective."""
        hooks, trials = self.open_hooks(), self.trials
        if trials is not None and not trials.has_tried(steps):
            with hooks.suspended():
                trials.run_on_whole(batch, steps)

    def look_at(self, batch: Any, spec: Any, steps: Sequence[str], is_divided: bool, batch_size: int) -> None:
        """Tries these steps on this rank's part of a batch, if they were not tried yet, or data has changed. Collective.

        Args:
            spec: of such batches.
            is_divided: whether ranks have parts of the same batch.
            batch_size: of all ranks together.

        Raises:
            UnsupportedError: they couple samples, so ranks cannot compute them from their parts.
        """
        hooks, trials = self.open_hooks(), self.trials
        if trials is None:
            return
        again = trials.has_tried(steps) and settings.trials() == "epochs" and self._again.is_worth(batch)
        if again or not trials.has_tried(steps):
            with hooks.suspended(), self._again.trying(batch):
                trials.run(batch, spec, steps, is_divided, batch_size, again)

    def start_alike(self, batch_spec: Any, validation_spec: Any = None) -> None:
        """Checks that all ranks have the same model, and gives them rank 0's weights and optimizer state. Collective.

        validation_spec: of a batch on which the model is validated in between; None if it is not.
        """
        model, hooks = self.keras_model, self.open_hooks()
        self.build(batch_spec)
        if validation_spec is not None:
            self.build(validation_spec, "test_step")
        self.likeness.end_single_steps(bring_together=self.shards is None)
        collectives.as_one(hooks.prepare)
        if self.sharding is None:
            refuse_shared_out(model)
        same = shard_state.random_states(model) if hooks.reproducible else []
        with self.likeness.handing_out():
            weights.broadcast([*adapter.weights(model), *adapter.whole_optimizer_variables(model), *same])
        if self.sharding is not None:
            self.sharding.start()
        if not hooks.reproducible:
            accumulation.clear_on_other_ranks(model)
            noise.start_generators_alike(model)
        self.likeness.is_started = True

    def take_masters_weights(self, call: str) -> None:
        """As `broadcast_weights`, but refuses if that loses what another rank has trained by itself. Collective."""
        self.likeness.check(call)
        self.broadcast_weights()

    def broadcast_weights(self) -> None:
        """Gives all ranks rank 0's weights, which are random if nothing was trained or loaded yet. Collective."""
        self.open_hooks()
        self.likeness.end_single_steps(bring_together=self.shards is None)
        self.likeness.before_handing_out()
        with self.likeness.handing_out():
            weights.broadcast(adapter.weights(self.keras_model))
        self.likeness.note()

    def served_callbacks(self, callbacks: list[Any]) -> list[Any]:
        """Callbacks of the master's that may read the optimizer's state, while the other ranks answer."""
        if self.sharding is None or settings.fingerprint() is None:
            return callbacks
        return [ServedCallbacks(callbacks, self.sharding.served)]

    def forget_likeness(self) -> None:
        """This rank's weights were changed: the ranks start alike again before the next step."""
        self.likeness.forget()
        self.likeness.forget_start()

    def write(self, method: str, filepath: Any, write_to: Callable[[str], Any], on_all_ranks: bool) -> None:
        """Writes a file of the model, by `files.write`. Collective. method: of `tnt.Model`, which does that."""

        def run() -> None:
            collectives.meet(f"tnt.Model.{method}")
            self.likeness.end_single_steps(bring_together=self.shards is None)
            self.likeness.check_file()
            check_all()
            alone = nullcontext() if self.sharding is None or on_all_ranks else self.sharding.served()
            files.write(filepath, write_to, on_all_ranks, alone)

        whole_calls.surviving(f"tnt.Model.{method}", run)


def verbosity(verbose: Any) -> Any:
    """The value of ``verbose`` on this rank: most ranks show no progress."""
    return verbose if runtime.shows_output() else 0


def refuse_stateful_layers(model: Any) -> None:
    """Refuses recurrent layers that keep the state of each sample for the next batch: a rank has other samples."""
    for layer in adapter.layers_of(model):
        if isinstance(layer, adapter.keras.layers.RNN) and layer.stateful:
            raise UnsupportedError(
                f"{layer.name} is stateful: it keeps a state for each sample of a whole batch, and a rank has a part of "
                "it. Use stateful=False, or compute on this rank alone by the methods of model.model"
            )
