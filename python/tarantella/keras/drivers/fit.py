"""`fit` of a `tnt.Model`: each rank trains on its part of each batch, and all have the same weights after each step."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import tensorflow as tf

from tarantella import collectives, reporting, runtime, seeding
from tarantella.keras import adapter
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint import callback as checkpoint
from tarantella.keras.checkpoint.callback import Checkpoint
from tarantella.keras.checkpoint.null_session import NullSession
from tarantella.keras.checkpoint.session import open_session
from tarantella.keras.data import lengths, split
from tarantella.keras.data.batches import GlobalBatches, Sharing
from tarantella.keras.drivers import own_methods
from tarantella.keras.drivers.distributed_model import DistributedModel, verbosity
from tarantella.keras.drivers.first_batches import FirstBatches
from tarantella.keras.elastic import elastic_fit
from tarantella.keras.elastic.elastic_fit import ElasticFit, Preparation
from tarantella.keras.reduction import statistics
from tarantella.keras.reduction.reducer import check_all
from tarantella.keras.reproducible import fingerprint
from tarantella.keras.step import normalization, unwrapped_models
from tarantella.keras.step.checks import StepChecks
from tarantella.keras.step.keras_methods import keras_method


@dataclass(frozen=True)
class FitArguments:
    """The arguments of Keras' `fit`, by its names; `loading` are those of legacy Keras alone."""

    x: Any
    y: Any
    batch_size: int | None
    epochs: int
    verbose: Any
    callbacks: Any
    validation_split: float
    validation_data: Any
    shuffle: bool
    class_weight: Any
    sample_weight: Any
    initial_epoch: int
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: Any
    loading: dict[str, Any]

    def keywords(self) -> dict[str, Any]:
        """All of them, as `fit` takes them."""
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "loading"}
        return {**named, **self.loading}

    def with_micro_batches(self, training: Sharing, validation: Sharing) -> "FitArguments":
        """The arguments with global batches in the place of the micro-batches that the user asked for."""
        x, batch_size = training.batched(self.x, self.batch_size)
        given, validation_batch_size = self.validation_data, self.validation_batch_size
        if isinstance(given, (tuple, list)):
            first, validation_batch_size = validation.batched(given[0], validation_batch_size)
            given = (first, *given[1:])
        elif given is not None:
            given, validation_batch_size = validation.batched(given, validation_batch_size)
        return replace(self, x=x, batch_size=batch_size, validation_data=given, validation_batch_size=validation_batch_size)

    def with_validation_split(self) -> "FitArguments":
        """The arguments with validation data of their own in the place of ``validation_split``."""
        if not self.validation_split or self.validation_data is not None:
            return self
        (x, y, sample_weight), validation_data = adapter.validation_split(
            self.x, self.y, self.sample_weight, self.validation_split
        )
        return replace(self, x=x, y=y, sample_weight=sample_weight, validation_data=validation_data, validation_split=0.0)

    def training_batches(self, model: Any) -> GlobalBatches:
        return GlobalBatches(
            "training data",
            self.x,
            self.y,
            self.sample_weight,
            batch_size=self.batch_size,
            steps=self.steps_per_epoch,
            shuffle=self.shuffle,
            class_weight=self.class_weight,
            model=model,
            epochs=self.epochs - self.initial_epoch,
            goes_on=True,
            **self.loading,
        )

    def validation_batches(self) -> GlobalBatches | None:
        if self.validation_data is None:
            return None
        given = self.validation_data if isinstance(self.validation_data, (tuple, list)) else (self.validation_data,)
        x, y, sample_weight = (*given, None, None)[:3]
        batch_size = self.validation_batch_size or self.batch_size
        options = {"batch_size": batch_size, "steps": self.validation_steps, **self.loading}
        return GlobalBatches("validation data", x, y, sample_weight, **options)

    def keywords_for(self, training: tf.data.Dataset, steps: int | None, **changed: Any) -> dict[str, Any]:
        """The arguments of Keras' `fit` for a training on a dataset of batches that were made of all the data arguments."""
        kept = ("epochs", "initial_epoch", "validation_freq", "validation_steps")
        arguments = {name: getattr(self, name) for name in kept}
        return {"x": training, "steps_per_epoch": steps, "shuffle": False, **arguments, **changed}  # shuffled already


def fit(model: DistributedModel, arguments: FitArguments, training: Sharing, validation: Sharing) -> Any:
    """Runs Keras' `fit`. Collective.

    Args:
        training, validation: how ranks share these data.
    """
    with reporting.step_of_failure(lambda: _steps_done(model)):
        model.refuse_unsupported(arguments.callbacks)
        arguments = arguments.with_micro_batches(training, validation)
        settings = checkpoint.find(adapter.callback_list(arguments.callbacks))
        if settings is not None or not model.is_plain:
            model.require_compiled("fit")
        if model.is_plain:
            return _fit_on_one_rank(model.keras_model, arguments, settings)
        preparation = Preparation()
        with preparation.running():
            _meet(arguments, settings)
            model.likeness.before_handing_out()
            return _fit_on_all_ranks(model, arguments.with_validation_split(), settings, training, validation, preparation)


def _steps_done(model: DistributedModel) -> int | None:
    optimizer = getattr(model.keras_model, "optimizer", None)  # none before the model is compiled
    return None if optimizer is None else int(optimizer.iterations)


def _fit_on_one_rank(model: Any, arguments: FitArguments, settings: Checkpoint | None) -> Any:
    arguments = replace(arguments, callbacks=fingerprint.with_callbacks(arguments.callbacks, model))
    with unwrapped_models.internal_call():
        if settings is None:
            return keras_method(model, "fit")(**arguments.keywords())
        return _fit_with_checkpoints(model, arguments.with_validation_split(), settings)


def _fit_with_checkpoints(model: Any, arguments: FitArguments, settings: Checkpoint) -> Any:
    """Runs `fit` with checkpoints on one rank: Keras' own, on batches whose position is known."""
    others = checkpoint.without(arguments.callbacks)
    session = open_session(settings, others, model, None, arguments.initial_epoch, arguments.epochs)
    seeding.agree_on_global_seed(session.seed)
    batches = arguments.training_batches(model)
    training = session.fingerprinted(batches.dataset, batches.steps, has_shares=False)
    adapter.build(model, training.element_spec)
    history = session.finished_history()
    if history is not None:
        return history
    session.validate_on(arguments.validation_data, arguments.validation_steps)
    callbacks = session.callbacks_for_keras(others, arguments.verbose, adapter.EpochNotifier(batches.source))
    with session.running():
        return keras_method(model, "fit")(
            **arguments.keywords_for(
                training,
                batches.steps,
                verbose=arguments.verbose,
                callbacks=callbacks,
                validation_data=arguments.validation_data,
                validation_batch_size=arguments.validation_batch_size or arguments.batch_size,
            )
        )


@collectives.failing_together("tnt.Model.fit")
def _fit_on_all_ranks(
    model: DistributedModel,
    arguments: FitArguments,
    settings: Checkpoint | None,
    sharing: Sharing,
    sharing_validation: Sharing,
    preparation: Preparation,
) -> Any:
    distribute, distribute_validation = sharing.distribute, sharing_validation.distribute
    hooks, others = model.open_hooks(), checkpoint.without(arguments.callbacks)
    session = open_session(settings, others, model.keras_model, hooks, arguments.initial_epoch, arguments.epochs)
    seeding.agree_on_global_seed(session.seed)
    batches = arguments.training_batches(model.keras_model)
    if distribute:
        normalization.warn_of_local_statistics(model.keras_model, batches.batch_size, model.shards)
    training = session.fingerprinted(batches.parts(sharing, model.division, in_lockstep=True), batches.steps)
    if not distribute and batches.steps is None:
        training = lengths.checked(training, batches.name)
    validation, validation_parts = arguments.validation_batches(), None
    if validation is not None:
        validation_parts = validation.parts(sharing_validation, model.division)
        arguments = replace(arguments, validation_steps=validation.steps)
    hooks.set_distributed(distribute)
    model.require_same(always=True)
    validates = validation_parts is not None and not adapter.has_own(model.keras_model, "evaluate")  # it may change batches
    session.validates_in_step = validates and distribute_validation
    model.likeness.warn("fit")
    model.likeness.forget()
    model.start_alike(split.batch_spec(training), split.batch_spec(validation_parts) if validates else None)
    steps = ["train_step", "test_step"] if validates else ["train_step"]
    is_divided = distribute or (validates and distribute_validation)
    model.before_data(split.batch_spec(training), steps, is_divided)
    history = session.finished_history()
    if history is not None:
        return history
    is_whole, numbers = distribute and distribute_validation, _numbers(arguments, settings)
    elastic = elastic_fit.create(preparation, model.keras_model, hooks, others, session, numbers, is_whole)
    if elastic is not None:
        elastic.train_on(training, batches.steps)
        if validation_parts is not None:
            elastic.validate_on(validation_parts, arguments.validation_steps)
    first_batches, validate = FirstBatches(model, elastic), None
    training = first_batches.dataset(training, steps, is_divided)
    if validation is not None and validation_parts is not None:
        given, size = arguments.validation_data, arguments.validation_batch_size or arguments.batch_size
        validate = own_methods.Validation(model, given, size, validation, sharing_validation, first_batches)
        session.validate_on(validation_parts, arguments.validation_steps)
        validation_parts = validate.parts = first_batches.dataset(validation_parts, ["test_step"], distribute_validation)
    with hooks.validating(validate):
        iterated = {"batches": batches, "training": training, "validation": validation_parts, "first_batches": first_batches}
        done = _run(model, arguments, session, callbacks=others, elastic=elastic, **iterated)
    if hooks.holds_all_weights:
        model.likeness.note()
    return done


def _meet(arguments: FitArguments, settings: Checkpoint | None) -> None:
    collectives.meet("tnt.Model.fit", **_numbers(arguments, settings))


def _numbers(arguments: FitArguments, settings: Checkpoint | None) -> dict[str, int | None]:
    """What must be the same on all ranks."""
    names = ("epochs", "initial_epoch", "steps_per_epoch", "validation_steps")
    return {**{name: getattr(arguments, name) for name in names}, **checkpoint.described(settings)}


def _run(
    model: DistributedModel,
    arguments: FitArguments,
    session: NullSession,
    *,
    callbacks: Sequence[Any],
    first_batches: FirstBatches,
    batches: GlobalBatches,
    training: tf.data.Dataset,
    validation: tf.data.Dataset | None,
    elastic: ElasticFit | None,
) -> Any:
    """Runs Keras' `fit` with the hooks, on this rank's parts of the batches."""
    hooks, verbose = model.open_hooks(), verbosity(arguments.verbose)
    keras_fit = keras_method(model.keras_model, "fit")
    checks = StepChecks(hooks, (batches.batch_size or 0) * (1 if hooks.distributed else runtime.get_size()))
    recording = fingerprint.callbacks(model.keras_model, hooks.reducers.bucket_of, model.view)
    first = [checks, *model.served_callbacks(recording)]
    if hooks.autotune is not None and not hooks.autotune.finished:
        first.append(hooks.autotune)
    callbacks = placement.for_fit(callbacks, hooks, first)
    epochs = adapter.EpochNotifier(batches.source)
    callbacks = session.callbacks_for_keras(callbacks, verbose, epochs)
    callbacks = [first_batches, *(callbacks if elastic is None else elastic.callbacks_for_keras(callbacks, epochs, checks))]
    keywords = arguments.keywords_for(training, batches.steps, verbose=verbose, callbacks=callbacks, validation_data=validation)
    datasets = (None,) if adapter.has_own(model.keras_model, "evaluate") else (training, validation)
    surviving = nullcontext() if elastic is None else elastic.running()
    with checks.locating_timeouts(), model.running(datasets), statistics.logged(model.stats), session.running(), surviving:
        history = keras_fit(**keywords)
        check_all()
        return history
