"""`tnt.Model`: a Keras model that trains on all ranks as it would on one device."""

from __future__ import annotations

import copy
import functools
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella import collectives, runtime, seeding, settings
from tarantella.errors import InvalidArgumentError, UnsupportedError
from tarantella.keras import adapter, files
from tarantella.keras.adapter import datasets
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint import callback as checkpoint
from tarantella.keras.checkpoint import session, single_rank
from tarantella.keras.data import batches, gather, split
from tarantella.keras.loops import optimizers
from tarantella.keras.reduction import ops, statistics, weights
from tarantella.keras.reduction.plan import Plan
from tarantella.keras.reproducible import fingerprint, shard_state, step
from tarantella.keras.step import accumulation, losses, metric_check, normalization, unwrapped_models
from tarantella.keras.step.checks import InStep, check_first_step
from tarantella.keras.step.hooks import StepHooks
from tarantella.strategy import ParallelStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from tarantella.keras.reduction.bucket_hook import PackedBucket

_OWN = frozenset({"_tnt_model", "_tnt_hooks", "_tnt_options"})


class Model:
    """A Keras model whose `fit` and `evaluate` share the work among all ranks.

    The global batch size is what the user states: rank r of n works on the samples ``batch[r::n]`` of every batch,
    gradients are summed over ranks while backward runs, weighted by samples, and all ranks hold the same weights.
    Everything else of the Keras model is there under its own name. A saved file is a plain Keras file.

    Args:
        model: a Keras model (functional, Sequential or subclassed), compiled or not. It is used, not copied.
        parallel_strategy: ``ParallelStrategy.DATA``; ``NONE`` gives the plain model back.
        gradient_dtype: ``"bfloat16"`` or ``"float16"`` sends float32 and float64 gradients in 16 bits, half the bytes or a
            quarter: each rank's is rounded once, the sum is taken in float32 and rounded once. bfloat16 keeps 8 bits of a
            number, float16 11, but a sum over ranks beyond 65504 becomes infinite: use Keras' `LossScaleOptimizer`, which sees
            it and skips the step on all ranks alike. None: as ``TNT_GRADIENT_DTYPE`` says, else as they are. The same on all
            ranks. Metrics are never rounded.
        bucket_hook: a function that is called with each `tnt.PackedBucket` of gradients before it is sent, on any thread, one
            call at a time; the other ranks wait for it. It may change ``bucket.data`` in place, and must not keep it. What it
            raises ends the step on all ranks with one `AbortedError`. Ranks may have different ones.
        fusion_threshold: bytes, as they are sent, at which a bucket of gradients is closed; 0: one reduction for each tensor,
            ``math.inf``: one for each step and type. None: as ``TNT_FUSION_THRESHOLD`` says, else chosen from the
            gradients' bytes and the measured speed of the transport, or by trying (``TNT_AUTOTUNE=1``). Changes no bits, unless
            several nodes have several ranks each.
            `tnt.plan` shows what comes of it.
        reproducible: V, a power of two, gives the same bits on 1, 2, ... or V ranks: each batch is cut into V shards, whatever
            the number of ranks, which must divide V, and each rank computes its shards one after the other
            (docs/reproducible.md). None: as ``TNT_REPRODUCIBLE`` says, else off. The same on all ranks.

    On one rank nothing is sent: no gradient is rounded, no hook is called.

    Raises:
        InvalidArgumentError: gradient_dtype, fusion_threshold or reproducible is none of these. TypeError: model or bucket_hook
            is something else. UnsupportedError: what is asked for cannot be reproducible.

    Example:
        >>> model = tnt.Model(keras.Sequential([keras.layers.Dense(10)]))
        >>> model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> model.fit(dataset.batch(256), epochs=3)      # 256 samples in each step, on all ranks together

        The norm of each bucket of this rank's gradients, which travel in half the bytes:

        >>> norms = collections.defaultdict(list)
        >>> def note_norm(bucket):
        ...     norms[bucket.index].append(float(np.linalg.norm(bucket.data.astype(np.float32))))
        >>> model = tnt.Model(keras_model, gradient_dtype="bfloat16", bucket_hook=note_norm)
    """

    _tnt_model: Any
    _tnt_hooks: StepHooks | None
    _tnt_options: tuple[str | None, Callable[[PackedBucket], object] | None, float | None, int | None]

    def __new__(
        cls,
        model: Any,
        parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
        gradient_dtype: str | None = None,
        bucket_hook: Callable[[PackedBucket], object] | None = None,
        fusion_threshold: float | None = None,
        reproducible: int | None = None,
    ) -> Any:
        if type(model) is Model:
            model = model.model
        if not adapter.is_model(model):
            why = adapter.in_other_keras(model)
            raise TypeError(f"tnt.Model needs a Keras model, not {type(model).__name__}" + (why and f": {why}"))
        if not isinstance(parallel_strategy, ParallelStrategy):
            raise TypeError(f"parallel_strategy is {parallel_strategy!r}: use a tnt.ParallelStrategy")
        if gradient_dtype not in (None, "bfloat16", "float16"):
            raise InvalidArgumentError(f"gradient_dtype is {gradient_dtype!r}: use 'bfloat16', 'float16' or None")
        if bucket_hook is not None and not callable(bucket_hook):
            raise TypeError(f"bucket_hook is {bucket_hook!r}: use a function of a tnt.PackedBucket")
        if fusion_threshold is not None and not (isinstance(fusion_threshold, (int, float)) and fusion_threshold >= 0):
            raise InvalidArgumentError(f"fusion_threshold is {fusion_threshold!r}: use a number of bytes, 0, math.inf or None")
        shards = step.shards_of_batches(reproducible, gradient_dtype, bucket_hook)
        unwrapped_models.watch()
        if parallel_strategy == ParallelStrategy.NONE:
            unwrapped_models.leave_alone(model)
            return model
        if parallel_strategy != ParallelStrategy.DATA:
            raise UnsupportedError("pipelining is not available in this version: use tnt.ParallelStrategy.DATA")
        ops.check_version(tf.__version__)
        self = object.__new__(cls)
        object.__setattr__(self, "_tnt_model", model)
        object.__setattr__(self, "_tnt_hooks", None)
        object.__setattr__(self, "_tnt_options", (gradient_dtype, bucket_hook, fusion_threshold, shards))
        unwrapped_models.wrap(model)
        return self

    # ------------------------------------------------------------------------------- being the Keras model inside

    @property
    def model(self) -> Any:
        """The Keras model inside: shares all weights, knows nothing of ranks (for serial evaluation or prediction)."""
        return self._tnt_model

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance(model, keras.Model) holds
        return type(self._tnt_model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tnt_model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self._tnt_model, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._tnt_model, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(Model), *dir(self._tnt_model)})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tnt_model(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tarantella.Model of {self._tnt_model!r}>"

    def __copy__(self) -> Any:
        return Model(copy.copy(self._tnt_model), ParallelStrategy.DATA, *self._tnt_options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return Model(copy.deepcopy(self._tnt_model, memo), ParallelStrategy.DATA, *self._tnt_options)

    def __reduce__(self) -> Any:
        return Model, (self._tnt_model, ParallelStrategy.DATA, *self._tnt_options)

    # -------------------------------------------------------------------------------------------------- compile

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Like Keras' `compile`, with its arguments.

        On several ranks ``jit_compile=True`` compiles the model with XLA in segments, between which gradients are reduced, and
        ``"auto"`` does not (docs/xla.md).
        """
        self._forget_hooks()
        with self._no_jit_unasked():
            self._tnt_model.compile(*args, **kwargs)

    def compile_from_config(self, config: Any) -> None:
        """Like Keras' `compile_from_config`."""
        self._forget_hooks()
        with self._no_jit_unasked():
            self._tnt_model.compile_from_config(config)

    def _no_jit_unasked(self) -> AbstractContextManager[None]:
        if self._is_plain():
            return nullcontext()
        text = 'jit_compile="auto" leaves XLA off on several ranks: compile the model with jit_compile=True to use it'
        return adapter.no_jit_unasked(self._tnt_model, lambda: runtime.logger.warning(text))

    def _is_plain(self) -> bool:
        """Whether Keras' own methods do all that is to be done."""
        return runtime.get_size() == 1 and self._shards is None

    @property
    def _shards(self) -> int | None:
        return self._tnt_options[-1]

    def _forget_hooks(self) -> None:
        if self._tnt_hooks is not None:
            self._tnt_hooks.close()
            self._tnt_hooks = None

    # ------------------------------------------------------------------------------------------ fit and evaluate

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
        *,
        tnt_micro_batch_size: int | None = None,
        tnt_validation_micro_batch_size: int | None = None,
        tnt_distribute_dataset: bool = True,
        tnt_distribute_validation_dataset: bool = True,
        **loading: Any,
    ) -> Any:
        """Trains the model on all ranks. Collective: every rank calls it with the same arguments.

        Args:
            x, y, batch_size, ...: as Keras' `fit` takes them. Batches are global: each rank gets its part of each.
            tnt_micro_batch_size: how many samples each rank has of a batch, where that is easier to say than the global batch
                size: a dataset without a batch is batched, else the batch must be so large.
            tnt_validation_micro_batch_size: the same for `validation_data`.
            tnt_distribute_dataset: False leaves the data alone: each rank's own batches are its part of the global one. All
                ranks must have the same number of batches.
            tnt_distribute_validation_dataset: the same for `validation_data`.
            loading: of legacy Keras: ``max_queue_size``, ``workers``, ``use_multiprocessing``.

        Returns:
            Keras' `History`; losses and metrics are those of the global batches, on every rank.

        Raises:
            MismatchError: ranks differ in model, batches or calls. PeerLostError, DeadlineError: a rank is missing.
            UnsupportedError: a metric or loss cannot be computed of ranks' parts.
        """
        model = self._tnt_model
        x, batch_size = batches.with_micro_batches(x, batch_size, tnt_micro_batch_size, tnt_distribute_dataset)
        if validation_data is not None:
            validation_data, validation_batch_size = _of_validation(
                validation_data, validation_batch_size, tnt_validation_micro_batch_size, tnt_distribute_validation_dataset
            )
        own = {"epochs": epochs, "initial_epoch": initial_epoch, "validation_freq": validation_freq}
        settings = checkpoint.of(adapter.callback_list(callbacks))
        if settings is not None:
            self._require_compiled("fit")
        if self._is_plain():
            callbacks = fingerprint.beside(callbacks, model)
            fit = model.fit if settings is None else functools.partial(single_rank.fit, model, settings)
            with unwrapped_models.internal_call():
                return fit(
                    x, y, batch_size=batch_size, verbose=verbose, callbacks=callbacks, validation_split=validation_split,
                    validation_data=validation_data, shuffle=shuffle, class_weight=class_weight,
                    sample_weight=sample_weight, steps_per_epoch=steps_per_epoch, validation_steps=validation_steps,
                    validation_batch_size=validation_batch_size, **own, **loading,
                )  # fmt: skip

        self._require_compiled("fit")
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = adapter.validation_split(x, y, sample_weight, validation_split)
        collectives.require_same(
            "fit",
            epochs=epochs,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            **checkpoint.described(settings),
        )
        hooks, others = self._hooks(), checkpoint.without(callbacks)
        saving = session.begin(settings, others, model, hooks, initial_epoch, epochs)
        seeding.agree_on_global_seed(saving.seed)
        rounds = {"model": model, "epochs": epochs - initial_epoch}
        source = adapter.source(x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight, **rounds, **loading)
        whole = adapter.batches(source)
        if tnt_distribute_dataset:
            normalization.warn_of_small_batches(model, datasets.batch_size(whole) or batch_size, self._shards)
        training = self._distribute(whole, tnt_distribute_dataset, "training data", same_length=steps_per_epoch is None)
        steps_per_epoch = adapter.steps_of(source, steps_per_epoch)
        training = saving.watched(training, steps_per_epoch)
        validation = None
        if validation_data is not None:
            given = validation_data if _is_several(validation_data) else (validation_data,)
            x, y, sample_weight = (*given, None, None)[:3]
            held_out = adapter.source(
                x, y, sample_weight, validation_batch_size or batch_size, validation_steps, False, None, **loading
            )
            same_length = tnt_distribute_validation_dataset and validation_steps is None
            validation = self._distribute(
                adapter.batches(held_out), tnt_distribute_validation_dataset, "validation data", same_length
            )
            validation_steps = adapter.steps_of(held_out, validation_steps)
        hooks.set_distributed(tnt_distribute_dataset)
        self._start_alike(hooks, split.batch_spec(training))
        outcome = saving.outcome()
        if outcome is not None:
            return outcome
        fit = hooks.original("fit")
        in_step = InStep(hooks)
        ours = [in_step, *fingerprint.callbacks(model, hooks.bucket_of)]
        ours += [hooks.autotune] if hooks.autotune is not None and not hooks.autotune.finished else []
        called, told = placement.for_fit(others, hooks, ours), adapter.Epochs(source)
        verbose = _verbosity(verbose)
        with (
            in_step.located(),
            self._distributed(hooks, [training, validation]),
            statistics.logged(self.stats),
            saving.running(),
        ):
            return fit(
                training,
                shuffle=False,  # as it is already, where it shall be
                verbose=verbose,
                callbacks=saving.around(called, verbose, told),
                validation_data=validation,
                steps_per_epoch=steps_per_epoch,
                validation_steps=validation_steps,
                **own,
            )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        *,
        tnt_micro_batch_size: int | None = None,
        tnt_distribute_dataset: bool = True,
        **loading: Any,
    ) -> Any:
        """Evaluates the model, each rank on its part of each batch. Collective; every rank gets the whole result."""
        model = self._tnt_model
        x, batch_size = batches.with_micro_batches(x, batch_size, tnt_micro_batch_size, tnt_distribute_dataset)
        if self._is_plain():
            return model.evaluate(
                x, y, batch_size=batch_size, verbose=verbose, sample_weight=sample_weight, steps=steps,
                callbacks=callbacks, return_dict=return_dict, **loading,
            )  # fmt: skip
        self._require_compiled("evaluate")
        source = adapter.source(x, y, sample_weight, batch_size, steps, False, None, model=model, **loading)
        same_length = tnt_distribute_dataset and steps is None
        parts = self._distribute(adapter.batches(source), tnt_distribute_dataset, "data to evaluate", same_length)
        hooks = self._hooks()
        self._build(split.batch_spec(parts))
        self._same_weights(hooks)
        evaluate, steps = hooks.original("evaluate"), adapter.steps_of(source, steps)
        with self._distributed(hooks, [parts]):
            return evaluate(
                parts,
                verbose=_verbosity(verbose),
                steps=steps,
                callbacks=placement.for_evaluate(callbacks),
                return_dict=return_dict,
            )

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
        *,
        tnt_micro_batch_size: int | None = None,
        tnt_distribute_dataset: bool = True,
        tnt_output_on_all_devices: bool = True,
        **loading: Any,
    ) -> Any:
        """The model's output for all samples, in the order of the data; each rank computes its part of each batch. Collective.

        Args:
            x, batch_size, ...: as Keras' `predict` takes them. Callbacks see the outputs of this rank's samples.
            tnt_distribute_dataset: False: this rank computes all that it gives as `x`, by itself; not collective.
            tnt_output_on_all_devices: False: the master gets the output, the other ranks None.

        Returns:
            Array, or structure of arrays, with a row for each sample.

        Raises:
            UnsupportedError: the output is text, ragged, or has not one row for each sample.
        """
        model = self._tnt_model
        x, batch_size = batches.with_micro_batches(x, batch_size, tnt_micro_batch_size, tnt_distribute_dataset)
        if runtime.get_size() == 1 or not tnt_distribute_dataset:
            return model.predict(
                x, batch_size=batch_size, verbose=_verbosity(verbose), steps=steps, callbacks=callbacks, **loading
            )
        source = adapter.source(x, None, None, batch_size, steps, False, None, model=model, **loading)
        parts = batches.distributed(adapter.batches(source), True, "data to predict from", same_length=steps is None)
        hooks = self._hooks()
        adapter.build_to_call(model, split.batch_spec(parts))
        self._same_weights(hooks)
        predict, steps = hooks.original("predict"), adapter.steps_of(source, steps)
        mine = [gather.OwnOutputs(), *placement.for_predict(callbacks)]
        with self._distributed(hooks, [parts]):
            predicted = predict(parts, verbose=_verbosity(verbose), steps=steps, callbacks=mine)
        return gather.in_order(predicted, tnt_output_on_all_devices)

    # ------------------------------------------------------------------------------------------------ single batches

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
        **how: Any,
    ) -> Any:
        """Like Keras' `train_on_batch`: one step on a global batch, of which each rank takes its part. Collective.

        Returns:
            Loss and metrics of the global batch, on every rank.
        """
        model = self._tnt_model
        if self._is_plain():
            with unwrapped_models.internal_call(), fingerprint.of_batch(model, dict):
                return model.train_on_batch(
                    x, y, sample_weight=sample_weight, class_weight=class_weight, return_dict=return_dict, **how
                )
        self._require_compiled("train_on_batch")
        part = self._part(adapter.batch_of(x, y, sample_weight, class_weight), self._shards)
        hooks = self._hooks()
        hooks.set_distributed(True)
        first = not hooks.alike
        if first:
            self._start_alike(hooks, _spec_of(part[0][0]))
        hooks.apart = True
        train_on_batch = hooks.original("train_on_batch")
        with self._distributed(hooks), hooks.one_batch(), fingerprint.of_batch(model, hooks.bucket_of):
            logs = train_on_batch(adapter.one_batch(part), return_dict=return_dict, **how)
        if first and not hooks.awaits_reduction():
            check_first_step(model, hooks)
        return logs

    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False, **how: Any) -> Any:
        """Like Keras' `test_on_batch`, on a global batch, of which each rank takes its part. Collective."""
        model = self._tnt_model
        if self._is_plain():
            return model.test_on_batch(x, y, sample_weight=sample_weight, return_dict=return_dict, **how)
        self._require_compiled("test_on_batch")
        part = self._part(adapter.batch_of(x, y, sample_weight, None), self._shards)
        hooks = self._hooks()
        self._build(_spec_of(part[0][0]))
        self._same_weights(hooks)
        test_on_batch = hooks.original("test_on_batch")
        with self._distributed(hooks), hooks.one_batch():
            test_on_batch(adapter.one_batch(part), return_dict=True, **how)
            return adapter.on_batch_logs(model, model.get_metrics_result(), return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """Like Keras' `predict_on_batch`, on a global batch, of which each rank takes its part. Collective."""
        model = self._tnt_model
        if runtime.get_size() == 1:
            return model.predict_on_batch(x)
        part = self._part(adapter.batch_of(x, None, None, None), shards=None)
        hooks = self._hooks()
        adapter.build_to_call(model, _spec_of(part[0][0]))
        self._same_weights(hooks)
        predict_on_batch = hooks.original("predict_on_batch")
        with self._distributed(hooks), hooks.one_batch():
            predicted = predict_on_batch(adapter.one_batch(part))
        return gather.in_order(predicted)

    def _distribute(self, whole: tf.data.Dataset, distribute: bool, what: str, same_length: bool) -> tf.data.Dataset:
        if self._shards is not None and not distribute:
            raise UnsupportedError(
                f"reproducible: {what} that each rank has of its own depend on the number of ranks: give all ranks the global "
                "batches, without tnt_distribute_dataset=False"
            )
        return batches.distributed(whole, distribute, what, same_length, self._shards)

    def _part(self, batch: Any, shards: int | None) -> Any:
        """This rank's shards of a batch with their shares."""
        split.check_batched(_spec_of(batch))
        return split.own_shards(batch, split.Division.among(runtime.get_size(), runtime.get_rank(), shards))

    def stats(self) -> dict[str, float]:
        """What this model's reducers have done on this rank: ``bytes``, ``steps``, ``busy_seconds``, ``exposed_seconds``."""
        return dict(statistics.NOTHING) if self._tnt_hooks is None else self._tnt_hooks.stats()

    def _tnt_plan(self) -> Plan:
        """See `tnt.plan`. Collective."""
        model = self._tnt_model
        if not adapter.trainable_variables(model) and not model.built:
            raise RuntimeError("the model has no variables yet: build it (give it an Input, or call it) before tnt.plan")
        self._hooks().prepare()
        return Plan(self._hooks().plan())

    def _hooks(self) -> StepHooks:
        if self._tnt_hooks is None:
            gradient_dtype, bucket_hook, threshold, shards = self._tnt_options
            if shards is None:
                self._tnt_hooks = StepHooks(self._tnt_model, gradient_dtype, bucket_hook, threshold)
            else:
                self._tnt_hooks = step.ReproducibleHooks(self._tnt_model, shards, threshold)
        return self._tnt_hooks

    def _require_compiled(self, method: str) -> None:
        if not adapter.is_compiled(self._tnt_model):
            raise RuntimeError(f"the model must be compiled before {method}: call tnt.Model.compile")
        losses.refuse_unreduced(self._tnt_model.loss)
        if optimizers.is_distributed(self._tnt_model.optimizer):
            raise UnsupportedError(
                "the model was compiled with an optimizer of tnt.optimizers.Optimizer, and tnt.Model reduces gradients itself: "
                "compile it with the plain optimizer"
            )

    def _start_alike(self, hooks: StepHooks, batch_spec: Any) -> None:
        """All ranks have the same model, and rank 0's weights and optimizer state. Collective."""
        model = self._tnt_model
        self._build(batch_spec)
        hooks.settle()
        hooks.prepare()
        weights.broadcast([*adapter.weights(model), *adapter.optimizer_variables(model)])
        if hooks.reproducible:
            weights.broadcast(shard_state.random_states(model))
        else:
            accumulation.distribute_sums(model.optimizer)
        hooks.alike = True

    def _build(self, batch_spec: Any) -> None:
        with metric_check.watched(self._tnt_model) as metrics:
            adapter.build(self._tnt_model, batch_spec)
        metrics.check()

    def _same_weights(self, hooks: StepHooks) -> None:
        """All ranks have rank 0's weights: random ones, if nothing was trained or loaded yet. Collective."""
        hooks.settle()
        weights.broadcast(adapter.weights(self._tnt_model))

    @contextmanager
    def _distributed(self, hooks: StepHooks, datasets: Sequence[tf.data.Dataset | None] = (None,)) -> Iterator[None]:
        """Keras runs with our hooks, and what our ops tell TensorFlow becomes our own error again.

        datasets: what Keras runs on; without, any part may be empty.
        """
        may_be_empty = datasets == (None,) or any(split.may_be_empty(d) for d in datasets if d is not None)
        with unwrapped_models.internal_call(), hooks.installed(may_be_empty), ops.translated(hooks.hook_error):
            yield

    # -------------------------------------------------------------------------------------------------- files

    def save(self, filepath: Any, *args: Any, tnt_save_all_devices: bool = False, **kwargs: Any) -> None:
        """Like Keras' `save`, written once, by the master (or by all ranks, each to its own path). Collective.

        Whoever looks sees the old file or the new one, never half of one.
        """
        self._write(filepath, lambda path: self._tnt_model.save(path, *args, **kwargs), tnt_save_all_devices)

    def save_weights(self, filepath: Any, *args: Any, tnt_save_all_devices: bool = False, **kwargs: Any) -> None:
        """Like Keras' `save_weights`, written once, by the master. Collective."""
        self._write(filepath, lambda path: self._tnt_model.save_weights(path, *args, **kwargs), tnt_save_all_devices)

    def export(self, filepath: Any, *args: Any, tnt_save_all_devices: bool = False, **kwargs: Any) -> None:
        """Like Keras' `export`, written once, by the master. Collective."""
        self._write(filepath, lambda path: self._tnt_model.export(path, *args, **kwargs), tnt_save_all_devices)

    def _write(self, filepath: Any, write_to: Callable[[str], Any], on_all_ranks: bool) -> None:
        if self._tnt_hooks is not None:
            self._tnt_hooks.settle()
        files.write(filepath, write_to, on_all_ranks)

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Like Keras' `load_weights`: every rank reads the file. `fit` starts from rank 0's in any case."""
        self._forget_likeness()
        return self._tnt_model.load_weights(*args, **kwargs)

    def set_weights(self, weights: Any) -> None:
        """Like Keras' `set_weights`, on this rank: what runs on all ranks next starts from rank 0's."""
        self._forget_likeness()
        self._tnt_model.set_weights(weights)

    def _forget_likeness(self) -> None:
        if self._tnt_hooks is not None:
            self._tnt_hooks.alike = False

    @property
    def dist_optimizer(self) -> Any:
        """The optimizer that the model was compiled with, under its old name."""
        return adapter.optimizer_of(self._tnt_model)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> Any:
        """A `tnt.Model` of what `get_config` of a functional or Sequential model gave.

        Raises:
            RuntimeError: it is the configuration of neither.
        """
        return Model(adapter.model_from_config(config, **kwargs))

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Like Keras' `summary`, printed by the master."""
        if runtime.is_master_rank() or settings.output_on_all_devices():
            self._tnt_model.summary(*args, **kwargs)


def _of_validation(
    given: Any, batch_size: int | None, micro_batch_size: int | None, distribute: bool
) -> tuple[Any, int | None]:
    """Validation data with its batch size, after what a micro-batch size says of them."""
    if not _is_several(given):
        return batches.with_micro_batches(given, batch_size, micro_batch_size, distribute)
    x, batch_size = batches.with_micro_batches(given[0], batch_size, micro_batch_size, distribute)
    return (x, *given[1:]), batch_size


def _is_several(validation_data: Any) -> bool:
    return isinstance(validation_data, (tuple, list))


def _spec_of(batch: Any) -> Any:
    return tf.nest.map_structure(tf.type_spec_from_value, batch)


def _verbosity(verbose: Any) -> Any:
    return verbose if runtime.is_master_rank() or settings.output_on_all_devices() else 0
