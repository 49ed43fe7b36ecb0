"""`evaluate` and `predict` of a `tnt.Model`: each rank computes its part of each batch, and results are brought together."""

from typing import Any

from tarantella import collectives, generations, runtime
from tarantella.keras import adapter
from tarantella.keras.callback_placement import placement
from tarantella.keras.data import gather, split
from tarantella.keras.data.batches import GlobalBatches, Sharing
from tarantella.keras.drivers.distributed_model import DistributedModel, verbosity
from tarantella.keras.drivers.first_batches import FirstBatches
from tarantella.keras.elastic import whole_calls
from tarantella.keras.step.keras_methods import keras_method


@collectives.failing_together("tnt.Model.evaluate")
def evaluate(
    model: DistributedModel, data: dict[str, Any], sharing: Sharing, verbose: Any, callbacks: Any, return_dict: bool
) -> Any:
    """Runs Keras' `evaluate` on several ranks, or on shards. Collective.

    Args:
        data: those arguments of Keras' `evaluate` that `GlobalBatches` takes.
        sharing: how ranks share the data.
    """
    model.require_compiled("evaluate")
    kept = whole_calls.InferenceState(model.keras_model)

    def run() -> Any:
        return _evaluate(model, kept, data, sharing, verbose, callbacks, return_dict)

    return whole_calls.surviving("tnt.Model.evaluate", run, data["x"], kept)


def _evaluate(
    model: DistributedModel,
    kept: whole_calls.InferenceState,
    data: dict[str, Any],
    sharing: Sharing,
    verbose: Any,
    callbacks: Any,
    return_dict: bool,
) -> Any:
    collectives.meet("tnt.Model.evaluate")
    batches = GlobalBatches("data to evaluate", model=model.keras_model, **data)
    parts, distribute = batches.parts(sharing, model.division), sharing.distribute
    keras_evaluate = keras_method(model.keras_model, "evaluate")
    model.require_same()
    model.build(split.batch_spec(parts), "test_step")
    model.take_masters_weights("evaluate")
    kept.note()
    model.before_data(split.batch_spec(parts), ["test_step"], distribute)
    first_batches = FirstBatches(model)
    parts = first_batches.dataset(parts, ["test_step"], distribute)
    with model.running([parts]), adapter.epoch_of(batches.source, evaluated=True):
        return keras_evaluate(
            parts,
            verbose=verbosity(verbose),
            steps=batches.steps,
            callbacks=[first_batches, *placement.for_evaluate(callbacks)],
            return_dict=return_dict,
        )


@collectives.failing_together("tnt.Model.predict")
def predict(model: DistributedModel, data: dict[str, Any], verbose: Any, callbacks: Any, on_all_ranks: bool) -> Any:
    """Runs Keras' `predict` on several ranks. Collective.

    Args:
        data: those arguments of Keras' `predict` that `GlobalBatches` takes.
        on_all_ranks: False gives the output to the master, and None to the other ranks.
    """
    everywhere = on_all_ranks or generations.is_elastic()  # another rank may be the master when all is done
    kept = whole_calls.InferenceState(model.keras_model)

    def run() -> Any:
        return _predict(model, kept, data, verbose, callbacks, everywhere)

    predicted = whole_calls.surviving("tnt.Model.predict", run, data["x"], kept)
    return predicted if on_all_ranks or runtime.is_master_rank() else None


def _predict(
    model: DistributedModel,
    kept: whole_calls.InferenceState,
    data: dict[str, Any],
    verbose: Any,
    callbacks: Any,
    on_all_ranks: bool,
) -> Any:
    collectives.meet("tnt.Model.predict")
    batches = GlobalBatches("data to predict from", model=model.keras_model, **data)
    parts = batches.parts(Sharing(), shards=None)
    keras_predict = keras_method(model.keras_model, "predict")
    model.require_same()
    adapter.build_to_call(model.keras_model, split.batch_spec(parts))
    model.take_masters_weights("predict")
    kept.note()
    first_batches = FirstBatches(model)
    parts = first_batches.dataset(parts, ["predict_step"], is_divided=True)
    callbacks = [first_batches, gather.OwnOutputs(), *placement.for_predict(callbacks)]
    with model.running([parts]), adapter.epoch_of(batches.source, evaluated=False):
        predicted = keras_predict(parts, verbose=verbosity(verbose), steps=batches.steps, callbacks=callbacks)
    return gather.in_order(predicted, on_all_ranks)
