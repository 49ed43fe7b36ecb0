"""The methods of `tnt.Model` for a class with a `fit`, `evaluate` or `predict` of its own, or one for single batches."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.data import split
from tarantella.keras.data.batches import GlobalBatches
from tarantella.keras.step import keras_methods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import tensorflow as tf

    from tarantella.keras.drivers.distributed_model import DistributedModel


def own_methods(model: Any, distributed: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Those of the class, by name. Each gets the user's arguments; where it reaches Keras' method, ours takes its place.

    Args:
        distributed: the methods of `tnt.Model`, by name.
    """
    return {name: _calling(model, name, distributed) for name in keras_methods.METHODS if adapter.has_own(model, name)}


def _calling(model: Any, name: str, distributed: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    @functools.wraps(getattr(model, name))
    def call(*args: Any, **kwargs: Any) -> Any:
        options = {option: kwargs.pop(option) for option in list(kwargs) if option.startswith("tnt_")}
        on_all_ranks = options.pop("tnt_output_on_all_devices", True)  # the class's version works on the whole output
        with keras_methods.routed(model, {**distributed, name: functools.partial(distributed[name], **options)}):
            result = getattr(model, name)(*args, **kwargs)
        return result if on_all_ranks or runtime.is_master_rank() else None

    return call


def validation(
    model: DistributedModel, given: Any, size: int | None, batches: GlobalBatches, parts: tf.data.Dataset, distribute: bool
) -> Callable[..., Any]:
    """What runs in `fit` in the place of the model's `evaluate`.

    An `evaluate` of the class's own gets the validation data as the user gave them. It may hand others to Keras, or leave it
    those that `fit` keeps.

    Args:
        given, size: the validation data and their batch size, as the user gave them to `fit`.
        batches, parts: their batches, and this rank's parts of these.
        distribute: whether ranks share batches of validation data.
    """
    keras_model = model.keras_model
    keras_evaluate = keras_methods.keras_method(keras_model, "evaluate")

    def evaluate(x: Any = None, y: Any = None, batch_size: int | None = None, **others: Any) -> Any:
        if adapter.is_validation_of_fit(others):
            with adapter.epoch_of(batches.source, evaluated=True):
                return keras_evaluate(parts, **others)
        names = ("verbose", "sample_weight", "steps", "callbacks", "return_dict")
        options = {name: others.pop(name) for name in names if name in others}
        data = (x, y, options.pop("sample_weight", None), batch_size, options.pop("steps", None))
        own_batches = GlobalBatches("validation data", *data, model=keras_model, **others)
        own_parts = own_batches.parts(distribute, model.division)
        spec = split.batch_spec(own_parts)
        with model.open_hooks().suspended():
            model.build(spec, "test_step")
            model.try_out(spec, distribute, ["test_step"])
        with adapter.epoch_of(own_batches.source, evaluated=True):
            return keras_evaluate(own_parts, steps=own_batches.steps, **options)

    if not adapter.has_own(keras_model, "evaluate"):
        return evaluate

    def validate(**of_fit: Any) -> Any:
        data = given if isinstance(given, (tuple, list)) else (given,)
        names = zip(("x", "y", "sample_weight"), (*data, None, None), strict=False)
        with keras_methods.routed(keras_model, {"evaluate": evaluate}):
            return model.open_hooks().original("evaluate")(**{**of_fit, **dict(names), "batch_size": size})

    return validate
