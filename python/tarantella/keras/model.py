"""`tnt.Model`: a Keras model that trains on all ranks as it would on one device."""

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tarantella import collectives, runtime
from tarantella.keras import adapter, deferred, files
from tarantella.keras.callback_placement import model_files
from tarantella.keras.data.batches import Sharing
from tarantella.keras.drivers import on_batch
from tarantella.keras.drivers.distributed_model import DistributedModel, Options, verbosity
from tarantella.keras.drivers.evaluate import evaluate, predict
from tarantella.keras.drivers.fit import FitArguments, fit
from tarantella.keras.drivers.own_methods import through_class
from tarantella.keras.loops import guard
from tarantella.keras.pipeline.methods import PipelineMethods
from tarantella.keras.pipeline.options import PipelineArguments
from tarantella.keras.pipeline.pipelined_model import PipelinedModel
from tarantella.keras.reduction.bucket_hook import PackedBucket
from tarantella.keras.reduction.plan import Plan
from tarantella.keras.reproducible import fingerprint
from tarantella.keras.step import keras_methods, unwrapped_models
from tarantella.keras.surrogate import Surrogate
from tarantella.strategy import ParallelStrategy


class Model(Surrogate):
    """A Keras model whose `fit` and `evaluate` share the work among all ranks.

    The user gives the global batch size. Rank r of n works on the samples ``batch[r::n]`` of every batch. The gradients are
    summed over ranks while backward runs, weighted by samples, and all ranks hold the same weights. Everything else of the
    Keras model is there under its own name. A saved file is a plain Keras file.

    Args:
        model: a Keras model (functional, Sequential or subclassed), compiled or not. It is used, not copied.
        parallel_strategy: ``ParallelStrategy.DATA``; ``PIPELINING``: each rank has some layers (docs/pipelines.md); ``NONE``
            gives the plain model back. ``ALL`` is ``DATA`` for a model without a `SplitLayer`, unless stages are asked for.
        num_pipeline_stages: the predecessor's name of `micro_batches`. Without pipelining it has no effect.
        gradient_dtype: ``"bfloat16"`` or ``"float16"`` sends float32 and float64 gradients in 16 bits, half the bytes or a
            quarter. Each rank's gradient is rounded once, the sum is taken in float32 and rounded once. bfloat16 keeps 8 bits
            of a number, float16 keeps 11, but a sum over ranks beyond 65504 becomes infinite: Keras' `LossScaleOptimizer`
            notices it and skips the step on all ranks alike. None: as ``TNT_GRADIENT_DTYPE`` says, else as they are. The value
            must be the same on all ranks. Metrics are never rounded.
        bucket_hook: a function that is called with each `tnt.PackedBucket` of gradients before it is sent, on any thread, one
            call at a time; the other ranks wait for it. It may change ``bucket.data`` in place, and must not keep it. An
            exception that it raises ends the step on all ranks with one `AbortedError`. Ranks may have different hooks.
        fusion_threshold: bytes, as they are sent, at which a bucket of gradients is closed. 0 gives one reduction for each
            tensor, ``math.inf`` one for each step and type. None: as ``TNT_FUSION_THRESHOLD`` says, else chosen from the
            gradients' bytes and the measured speed of the transport, or by trying (``TNT_FUSION_THRESHOLD=autotune``). The
            threshold changes no bits, unless several nodes have several ranks each. `tnt.plan` shows the buckets.
        reproducible: V, a power of two, gives the same bits on 1, 2, ... or V ranks. Each batch is cut into V shards, whatever
            the number of ranks, which must divide V, and each rank computes its shards one after the other
            (docs/reproducible.md). None: as ``TNT_REPRODUCIBLE`` says, else off. The value must be the same on all ranks.
        across_ranks: True: nothing is said of a loss given to `compile` that couples the samples of a batch, such as a root of
            a mean. It is computed on every rank from the labels and outputs of all ranks, which are gathered in each step, as
            one device computes it. Without this option a warning tells how many bytes that takes.
        accept_approximate: True: what couples samples is neither gathered nor refused; the mean of what ranks get from their
            own samples is trained instead, and the log says once by how much that differs.
        samples: ``"independent"`` says that the samples of a batch are, and that losses and steps are means over them. The
            model is not tried on some samples of the first batch, which finds out otherwise (`tnt.independent_samples`
            says it of one function).
        shard_optimizer: True: each rank holds the optimizer's state of a part of the variables, about 1/n of its bytes, and
            updates these. The bits are those of an ordinary run on the same ranks (docs/sharded-optimizer.md). The value must
            be the same on all ranks. None: as TNT_SHARD_OPTIMIZER says.
        pipeline_stages, micro_batches, schedule: of a pipeline. How many stages it has, or the names of the layers with which
            the second and later ones begin; into how many parts a batch is cut; ``"gpipe"``, ``"1f1b"`` or ``"interleaved"``.

    On one rank nothing is sent: no gradient is rounded, no hook is called.

    Raises:
        InvalidArgumentError: num_pipeline_stages, gradient_dtype, fusion_threshold or reproducible has another value.
        TypeError: model or another argument is something else. UnsupportedError: the model cannot be a pipeline, or
        not be reproducible with these options.

    Examples:
        >>> model = tnt.Model(keras.Sequential([keras.layers.Dense(10)]))
        >>> model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> model.fit(dataset.batch(256), epochs=3)      # 256 samples in each step, on all ranks together

        The norm of each bucket of this rank's gradients, which travel in half the bytes:

        >>> norms = collections.defaultdict(list)
        >>> def note_norm(bucket):
        ...     norms[bucket.index].append(float(np.linalg.norm(bucket.data.astype(np.float32))))
        >>> model = tnt.Model(keras_model, gradient_dtype="bfloat16", bucket_hook=note_norm)
    """

    def __new__(
        cls,
        model: Any,
        parallel_strategy: ParallelStrategy = ParallelStrategy.DATA,
        num_pipeline_stages: int = 1,
        *,
        gradient_dtype: str | None = None,
        bucket_hook: Callable[[PackedBucket], object] | None = None,
        fusion_threshold: float | None = None,
        reproducible: int | None = None,
        across_ranks: bool = False,
        accept_approximate: bool = False,
        shard_optimizer: bool | None = None,
        samples: str | None = None,
        pipeline_stages: int | Sequence[str] | None = None,
        micro_batches: int | None = None,
        schedule: str = "1f1b",
    ) -> Any:
        if issubclass(type(model), Model):
            model = model.model
        if not adapter.is_model(model):
            why = adapter.in_other_keras(model)
            raise TypeError(f"tnt.Model needs a Keras model, not {type(model).__name__}" + (why and f": {why}"))
        if not isinstance(parallel_strategy, ParallelStrategy):
            raise TypeError(f"parallel_strategy is {parallel_strategy!r}: use a tnt.ParallelStrategy")
        options = Options(
            gradient_dtype=gradient_dtype, bucket_hook=bucket_hook, fusion_threshold=fusion_threshold,
            reproducible=reproducible, across_ranks=across_ranks, accept_approximate=accept_approximate,
            shard_optimizer=shard_optimizer, samples=samples,
        ).checked()  # fmt: skip
        unwrapped_models.install_checks()
        guard.install()
        keras_methods.install()
        model_files.install()
        if parallel_strategy == ParallelStrategy.NONE:
            deferred.fill_model(model)
            unwrapped_models.allow(model)
            return model
        arguments = PipelineArguments(parallel_strategy, num_pipeline_stages, pipeline_stages, micro_batches, schedule)
        pipeline = arguments.checked(model, options)
        self: Any = object.__new__(cls if pipeline is None else type(cls.__name__, (PipelineMethods, cls), {}))
        if pipeline is None:
            deferred.fill_model(model)
        inside = DistributedModel(model, options) if pipeline is None else PipelinedModel(model, options, arguments, pipeline)
        object.__setattr__(self, "_tnt", inside)
        unwrapped_models.mark_wrapped(model)
        return self

    def __copy__(self) -> Any:
        return Model(copy.copy(self.model), **self._tnt.keywords())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return Model(copy.deepcopy(self.model, memo), **self._tnt.keywords())

    def __reduce__(self) -> Any:
        return functools.partial(Model, **self._tnt.keywords()), (self.model,)

    # -------------------------------------------------------------------------------------------------- compile

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Like Keras' `compile`, with its arguments.

        On several ranks ``jit_compile=True`` compiles the model with XLA in segments, between which gradients are reduced, and
        ``"auto"`` does not (docs/xla.md).
        """
        with self._tnt.compiling():
            self.model.compile(*args, **kwargs)

    def compile_from_config(self, config: Any) -> None:
        """Like Keras' `compile_from_config`."""
        with self._tnt.compiling():
            self.model.compile_from_config(config)

    # ---------------------------------------------------------------------------------- fit, evaluate and predict

    @through_class
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
        tnt_batch_size: int | Callable[[Any], Any] | None = None,
        tnt_validation_batch_size: int | Callable[[Any], Any] | None = None,
        **loading: Any,
    ) -> Any:
        """Trains the model on all ranks. Collective: every rank calls it with the same arguments.

        Args:
            x, y, batch_size, ...: as Keras' `fit` takes them. Batches are global: each rank gets its part of each.
            tnt_micro_batch_size: how many samples of a batch each rank gets, instead of the global batch size. A dataset
                without a batch is batched. Other data must have the batch size that this makes on all ranks together.
            tnt_validation_micro_batch_size: the same for `validation_data`.
            tnt_distribute_dataset: False if each rank has batches of its own, which together make the global batches. All
                ranks must have the same number of batches.
            tnt_batch_size: how many samples this rank has in each of its own batches, such as graphs that are joined into one:
                a number, or a function of a batch as the dataset has it. By default those of the first tensor are counted.
            tnt_distribute_validation_dataset, tnt_validation_batch_size: the same for `validation_data`.
            loading: of legacy Keras: ``max_queue_size``, ``workers``, ``use_multiprocessing``.

        Returns:
            Keras' `History`; losses and metrics are those of the global batches, on every rank.

        Raises:
            MismatchError: ranks differ in model, batches or calls. PeerLostError, DeadlineError: a rank is missing.
            UnsupportedError: a metric, loss or training step cannot be computed from the ranks' parts.
        """
        arguments = FitArguments(
            x=x, y=y, batch_size=batch_size, epochs=epochs, verbose=verbose, callbacks=callbacks,
            validation_split=validation_split, validation_data=validation_data, shuffle=shuffle, class_weight=class_weight,
            sample_weight=sample_weight, initial_epoch=initial_epoch, steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps, validation_batch_size=validation_batch_size, validation_freq=validation_freq,
            loading=loading,
        )  # fmt: skip
        training = Sharing(tnt_distribute_dataset, tnt_micro_batch_size, tnt_batch_size)
        validation = Sharing(tnt_distribute_validation_dataset, tnt_validation_micro_batch_size, tnt_validation_batch_size)
        return fit(self._tnt, arguments, training, validation)

    @through_class
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
        tnt_batch_size: int | Callable[[Any], Any] | None = None,
        **loading: Any,
    ) -> Any:
        """Evaluates the model, each rank on its part of each batch. Every rank gets the result for all data. Collective.

        Args:
            x, y, batch_size, ...: as Keras' `evaluate` takes them. Batches are global.
            tnt_micro_batch_size, tnt_distribute_dataset, tnt_batch_size: as for `fit`.
        """
        sharing = Sharing(tnt_distribute_dataset, tnt_micro_batch_size, tnt_batch_size)
        x, batch_size = sharing.batched(x, batch_size)
        data = {"x": x, "y": y, "batch_size": batch_size, "sample_weight": sample_weight, "steps": steps, **loading}
        if self._tnt.is_plain:
            evaluate_here = keras_methods.keras_method(self.model, "evaluate")
            return evaluate_here(**data, verbose=verbose, callbacks=callbacks, return_dict=return_dict)
        return evaluate(self._tnt, data, sharing, verbose, callbacks, return_dict)

    @through_class
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
            tnt_micro_batch_size: as for `fit`.
            tnt_distribute_dataset: False: this rank computes the outputs of all samples in `x` by itself; not collective.
            tnt_output_on_all_devices: False: the master gets the output, the other ranks None.

        Returns:
            Array, or structure of arrays, with a row for each sample.

        Raises:
            UnsupportedError: the output is text, ragged, or has not one row for each sample.
        """
        x, batch_size = Sharing(tnt_distribute_dataset, tnt_micro_batch_size).batched(x, batch_size)
        data = {"x": x, "batch_size": batch_size, "steps": steps, **loading}
        if runtime.get_size() == 1 or not tnt_distribute_dataset:
            return keras_methods.keras_method(self.model, "predict")(**data, verbose=verbosity(verbose), callbacks=callbacks)
        return predict(self._tnt, data, verbose, callbacks, tnt_output_on_all_devices)

    # ------------------------------------------------------------------------------------------------ single batches

    @through_class
    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
        **options: Any,
    ) -> Any:
        """Like Keras' `train_on_batch`: one step on a global batch, of which each rank takes its part. Collective.

        Returns:
            Loss and metrics of the global batch, on every rank.
        """
        if self._tnt.is_plain:
            with unwrapped_models.internal_call(), fingerprint.recorded_step(self.model, dict):
                return keras_methods.keras_method(self.model, "train_on_batch")(
                    x, y, sample_weight=sample_weight, class_weight=class_weight, return_dict=return_dict, **options
                )
        return on_batch.train_on_batch(self._tnt, x, y, sample_weight, class_weight, return_dict, **options)

    @through_class
    def test_on_batch(self, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False, **options: Any) -> Any:
        """Like Keras' `test_on_batch`, on a global batch, of which each rank takes its part. Collective."""
        if self._tnt.is_plain:
            test = keras_methods.keras_method(self.model, "test_on_batch")
            return test(x, y, sample_weight=sample_weight, return_dict=return_dict, **options)
        return on_batch.test_on_batch(self._tnt, x, y, sample_weight, return_dict, **options)

    @through_class
    def predict_on_batch(self, x: Any) -> Any:
        """Like Keras' `predict_on_batch`, on a global batch, of which each rank takes its part. Collective."""
        if runtime.get_size() == 1:
            return keras_methods.keras_method(self.model, "predict_on_batch")(x)
        return on_batch.predict_on_batch(self._tnt, x)

    # ---------------------------------------------------------------------------------------- figures of the reduction

    def stats(self) -> dict[str, float]:
        """The work of this model's reducers on this rank: ``bytes``, ``steps``, ``busy_seconds``, ``exposed_seconds``."""
        return self._tnt.stats()

    def _tnt_plan(self) -> Plan:
        """See `tnt.plan`. Collective."""
        if not adapter.trainable_variables(self.model) and not self.model.built:
            raise RuntimeError("the model has no variables yet: build it (give it an Input, or call it) before tnt.plan")
        collectives.meet("tnt.plan")
        hooks = self._tnt.open_hooks()
        hooks.prepare()
        return Plan(hooks.reducers.plan())

    # -------------------------------------------------------------------------------------------- weights and files

    def save(self, filepath: Any, *args: Any, tnt_save_all_devices: bool = False, **kwargs: Any) -> None:
        """Like Keras' `save`, written once, by the master (or by all ranks, each to its own path). Collective.

        A reader sees the old file or the new one, never a part of one.

        Raises:
            FileExistsError: the file is there, and ``overwrite=False``; Keras would ask, and nobody answers in a job.
        """
        files.refuse_to_overwrite(filepath, *args, **kwargs)
        self._tnt.write("save", filepath, lambda path: self.model.save(path, *args, **kwargs), tnt_save_all_devices)

    def save_weights(self, filepath: Any, *args: Any, tnt_save_all_devices: bool = False, **kwargs: Any) -> None:
        """Like Keras' `save_weights`, written once, by the master. Collective. Raises FileExistsError as `save` does."""
        files.refuse_to_overwrite(filepath, *args, **kwargs)
        write = functools.partial(self._tnt.write, "save_weights", filepath)
        write(lambda path: self.model.save_weights(path, *args, **kwargs), tnt_save_all_devices)

    def export(self, filepath: Any, *args: Any, tnt_save_all_devices: bool = False, **kwargs: Any) -> None:
        """Like Keras' `export`, written once, by the master. Collective."""
        self._tnt.write("export", filepath, lambda path: self.model.export(path, *args, **kwargs), tnt_save_all_devices)

    def load_weights(self, *args: Any, **kwargs: Any) -> Any:
        """Like Keras' `load_weights`: every rank reads the file, and goes on when all have read it. Collective.

        `fit` starts from rank 0's weights in any case.
        """
        self._tnt.forget_likeness()
        return files.read(lambda: self.model.load_weights(*args, **kwargs))

    def set_weights(self, weights: Any) -> None:
        """Like Keras' `set_weights`, on this rank. The next method that runs on all ranks starts from rank 0's weights."""
        self._tnt.forget_likeness()
        self.model.set_weights(weights)

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> Any:
        """Makes a `tnt.Model` from the result of a functional or Sequential model's `get_config`.

        Raises:
            RuntimeError: it is the configuration of neither.
        """
        return Model(adapter.model_from_config(config, **kwargs))

    def summary(self, *args: Any, **kwargs: Any) -> None:
        """Like Keras' `summary`, printed by the master."""
        if runtime.shows_output():
            self.model.summary(*args, **kwargs)
