"""The methods of `tnt.Model` for a class with a `fit`, `evaluate` or `predict` of its own, or one for single batches."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.data import split
from tarantella.keras.data.batches import GlobalBatches, Sharing
from tarantella.keras.drivers.distributed_model import DistributedModel
from tarantella.keras.drivers.first_batches import FirstBatches
from tarantella.keras.step import keras_methods


def through_class(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `tnt.Model` that leaves the user's arguments to the version of the model's class, if that has one.

    Where the class's version reaches Keras' method, `method` takes its place.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = self.model
        if not adapter.has_own(model, name):
            return method(self, *args, **kwargs)
        options = {option: kwargs.pop(option) for option in list(kwargs) if option.startswith("tnt_")}
        on_all_ranks = options.pop("tnt_output_on_all_devices", True)  # the class's version works on the whole output
        routes = {other: functools.partial(_ours(type(self), other), self) for other in keras_methods.METHODS}
        routes[name] = functools.partial(method, self, **options)
        with keras_methods.routed(model, routes):
            result = getattr(model, name)(*args, **kwargs)
        return result if on_all_ranks or runtime.is_master_rank() else None

    _ours_by_call[call] = method
    return call


_ours_by_call: dict[Any, Callable[..., Any]] = {}


def _ours(kind: type, name: str) -> Callable[..., Any]:
    """What `through_class` got for this name; a class that the user derives from `tnt.Model` may have another method."""
    return next(_ours_by_call[vars(base)[name]] for base in kind.__mro__ if vars(base).get(name) in _ours_by_call)


class Validation:
    """What runs in `fit` in the place of the model's `evaluate`.

    An `evaluate` of the class's own gets the validation data as the user gave them. It may hand others to Keras, or leave it
    those that `fit` keeps.

    Args:
        given, size: the validation data and their batch size, as the user gave them to `fit`.
        batches: their batches.
        sharing: how ranks share batches of validation data.
        first_batches: tries the first batch of each iteration.

    Attributes:
        parts: this rank's parts of the batches.
    """

    parts: tf.data.Dataset

    def __init__(
        self,
        model: DistributedModel,
        given: Any,
        size: int | None,
        batches: GlobalBatches,
        sharing: Sharing,
        first_batches: FirstBatches,
    ) -> None:
        self._model, self._batches, self._sharing, self._first_batches = model, batches, sharing, first_batches
        self._keras_evaluate = keras_methods.keras_method(model.keras_model, "evaluate")
        self._own: dict[str, Any] | None = None
        if adapter.has_own(model.keras_model, "evaluate"):
            data = given if isinstance(given, (tuple, list)) else (given,)
            names = zip(("x", "y", "sample_weight"), (*data, None, None), strict=False)
            self._own = {**dict(names), "batch_size": size}

    def __call__(self, **fit_arguments: Any) -> Any:
        """Validates, with the arguments that Keras' `fit` has for `evaluate`."""
        if self._own is None:
            return self._evaluate(**fit_arguments)
        with keras_methods.routed(self._model.keras_model, {"evaluate": self._evaluate}):
            return self._model.open_hooks().original("evaluate")(**{**fit_arguments, **self._own})

    def _evaluate(self, x: Any = None, y: Any = None, batch_size: int | None = None, **others: Any) -> Any:
        if adapter.is_validation_of_fit(others):
            with adapter.epoch_of(self._batches.source, evaluated=True):
                return self._keras_evaluate(self.parts, **others)
        model = self._model
        names = ("verbose", "sample_weight", "steps", "callbacks", "return_dict")
        options = {name: others.pop(name) for name in names if name in others}
        data = (x, y, options.pop("sample_weight", None), batch_size, options.pop("steps", None))
        batches = GlobalBatches("validation data", *data, model=model.keras_model, **others)
        parts = batches.parts(self._sharing, model.division)
        with model.open_hooks().suspended():
            model.build(split.batch_spec(parts), "test_step")
        parts = self._first_batches.dataset(parts, ["test_step"], self._sharing.distribute)
        with adapter.epoch_of(batches.source, evaluated=True), model.open_hooks().functions.running():
            return self._keras_evaluate(parts, steps=batches.steps, **options)
