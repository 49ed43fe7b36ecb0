"""`train_on_batch`, `test_on_batch` and `predict_on_batch` of a `tnt.Model`: each rank computes its part of one batch."""

from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.keras import adapter
from tarantella.keras.data import gather, joined, rows, split
from tarantella.keras.drivers.distributed_model import DistributedModel
from tarantella.keras.reduction import ops
from tarantella.keras.reproducible import fingerprint
from tarantella.keras.step.checks import check_first_step, reduced_gradients
from tarantella.keras.step.keras_methods import keras_method


@collectives.failing_together("tnt.Model.train_on_batch")
def train_on_batch(
    model: DistributedModel, x: Any, y: Any, sample_weight: Any, class_weight: Any, return_dict: bool, **options: Any
) -> Any:
    """Makes one step on a global batch. Collective. options: others of Keras' `train_on_batch`."""
    model.require_compiled("train_on_batch")
    part = _part(adapter.batch_of(x, y, sample_weight, class_weight), model.division)
    hooks = model.open_hooks()
    hooks.set_distributed(True)
    first = not model.likeness.is_started
    if first:
        collectives.meet("tnt.Model.train_on_batch")
        model.require_same(always=True)
        model.start_alike(_step_spec(part))
    _look_at(model, part, "train_step")
    model.likeness.begin_single_step()
    keras_train_on_batch = keras_method(model.keras_model, "train_on_batch")
    recorded = fingerprint.recorded_step(model.keras_model, hooks.reducers.bucket_of, model.view)
    with collectives.explained("tnt.Model.train_on_batch"), model.running(), hooks.single_batch(), recorded:
        logs = keras_train_on_batch(adapter.pack_batch(part), return_dict=return_dict, **options)
    if first and not hooks.gradients.awaits_reduction():
        check_first_step(model.keras_model, hooks, reduced_gradients(model.keras_model, hooks))
    return logs


@collectives.failing_together("tnt.Model.test_on_batch")
def test_on_batch(model: DistributedModel, x: Any, y: Any, sample_weight: Any, return_dict: bool, **options: Any) -> Any:
    """Evaluates a global batch. Collective. options: others of Keras' `test_on_batch`."""
    model.require_compiled("test_on_batch")
    part = _part(adapter.batch_of(x, y, sample_weight, None), model.division)
    collectives.meet("tnt.Model.test_on_batch")
    hooks = model.open_hooks()
    model.build(_step_spec(part), "test_step")
    model.broadcast_weights()
    _look_at(model, part, "test_step")
    keras_test_on_batch = keras_method(model.keras_model, "test_on_batch")
    with model.running(), hooks.single_batch():
        return keras_test_on_batch(adapter.pack_batch(part), return_dict=return_dict, **options)


def predict_on_batch(model: DistributedModel, x: Any) -> Any:
    """Computes the model's output for a global batch. Collective."""
    return gather.in_order(predicted_part(model, x, None))


@collectives.failing_together("tnt.Model.predict_on_batch")
def predicted_part(model: DistributedModel, x: Any, division: split.Division | None) -> Any:
    """What the model's step gives for this rank's part of a batch. Collective. division: None: one shard for each rank."""
    part = _part(adapter.batch_of(x, None, None, None), division)
    collectives.meet("tnt.Model.predict_on_batch")
    adapter.build_to_call(model.keras_model, _spec(part[0][0]))
    model.broadcast_weights()
    _look_at(model, part, "predict_step")
    keras_predict_on_batch = keras_method(model.keras_model, "predict_on_batch")
    with model.running(), model.open_hooks().single_batch():
        return keras_predict_on_batch(adapter.pack_batch(part))


def _look_at(model: DistributedModel, part: Any, step: str) -> None:
    """Tries the step, once, on the first batch that it gets."""
    if step != "predict_step":
        model.before_data(_step_spec(part), [step], True)
    if model.trials is not None and not model.trials.has_tried([step]):
        (batch, (_, total, _)), *_ = part
        batch = batch if step == "predict_step" else adapter.batch_for_step(batch)
        model.look_at(batch, _spec(batch), [step], True, int(total))


def _part(batch: Any, division: int | split.Division | None) -> Any:
    """This rank's shards of a batch with their shares. division: as for `GlobalBatches.parts`."""
    split.check_batched(_spec(batch))
    if len({int(rows.size_of(tensor)) for tensor in tf.nest.flatten(batch) if tensor is not None}) > 1:
        with ops.translated_errors():
            joined.checks(split.named(batch), False, joined.IN_PARTS)
    if not isinstance(division, split.Division):
        division = split.Division.among(runtime.get_size(), runtime.get_rank(), division)
    return split.own_shards(batch, division)


def _step_spec(part: Any) -> Any:
    """The spec of the batch that a training or test step gets."""
    return adapter.batch_for_step(_spec(part[0][0]))


def _spec(batch: Any) -> Any:
    return tf.nest.map_structure(lambda tensor: None if tensor is None else tf.type_spec_from_value(tensor), batch)
