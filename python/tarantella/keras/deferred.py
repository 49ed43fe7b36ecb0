"""Weights that get no memory when a model is built: `tnt.deferred_weights`.

A deferred weight is a released variable, with the initializer that it would have begun with. Keras' own initializers draw their
seeds when they are made, so the order in which they are called later changes no bits.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import tensorflow as tf

from tarantella import collectives
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.step.patch import patched

_INITIALIZER = "_tnt_initializer"
_was_used = False  # whether there may be deferred weights: a model that is not compiled yet may refuse to list its variables


@contextmanager
def deferred_weights() -> Iterator[None]:
    """Context in which a Keras model is built without memory for its weights, for a pipeline of which each rank has a part.

    The ranks of a pipeline give memory and first values to the weights of their own stages alone, before the first step: the
    values that they would have had. Any other `tnt.Model` gives them to all weights at once. Until then the model can compute
    nothing. Weights that a layer initializes in another way than by an initializer of Keras' with an integer as its seed, or
    none, are made as ever. Not collective.

    Raises:
        UnsupportedError: Keras is legacy Keras.

    Examples:
        >>> with tnt.deferred_weights():
        ...     keras_model = build_large_model()
        >>> model = tnt.Model(keras_model, tnt.ParallelStrategy.PIPELINING)
    """
    if LEGACY:
        raise UnsupportedError("tnt.deferred_weights needs Keras 3: unset TF_USE_LEGACY_KERAS")
    global _was_used
    _was_used = True
    layer = adapter.keras.layers.Layer
    add_weight = layer.add_weight
    layer.add_weight = _deferring(add_weight)
    try:
        yield
    finally:
        layer.add_weight = add_weight


def _deferring(add_weight: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(add_weight)

    @functools.wraps(add_weight)
    def add_deferred_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        initializer = given.arguments["initializer"]
        if initializer is None:  # as Keras does it
            dtype = adapter.keras.backend.standardize_dtype(given.arguments["dtype"] or self.variable_dtype)
            initializer = "glorot_uniform" if "float" in dtype else "zeros"
        initializer = adapter.keras.initializers.get(initializer)
        given.arguments["initializer"] = _nothing if _can_wait(initializer) else initializer
        variable = add_weight(*given.args, **given.kwargs)
        if _can_wait(initializer):
            setattr(variable, _INITIALIZER, initializer)
            adapter.release(variable)
        return variable

    return add_deferred_weight


def _nothing(shape: Any, dtype: Any = None) -> tf.Tensor:
    return tf.zeros(shape, dtype)


def _can_wait(initializer: Any) -> bool:
    """Whether it gives the same values whenever it is called: it is one of Keras' own, and its seed is a number."""
    kind = type(initializer)
    is_of_keras = kind.__module__.partition(".")[0] == "keras" and isinstance(
        initializer, adapter.keras.initializers.Initializer
    )
    return is_of_keras and isinstance(getattr(initializer, "seed", 0), int)


def _value(variable: Any, initializer: Any) -> tf.Tensor:
    return initializer(tuple(variable.shape), dtype=adapter.dtype_of(variable))


def is_deferred(variable: Any) -> bool:
    """Whether the variable was made without memory. It may have got its value by now."""
    return hasattr(variable, _INITIALIZER)


def fill(variables: Iterable[Any]) -> None:
    """Gives deferred variables their first values."""
    for variable in variables:
        if is_deferred(variable):
            adapter.refill(variable, _value(variable, getattr(variable, _INITIALIZER)))
            delattr(variable, _INITIALIZER)


def fill_model(model: Any) -> None:
    """Gives all deferred weights of a model their first values."""
    if _was_used:
        fill(adapter.weights(model))


def agree(variables: Sequence[Any]) -> None:
    """Gives the variables' initializers the seeds and arguments that rank 0 has. Collective."""
    initializers = adapter.keras.initializers
    own = [getattr(v, _INITIALIZER) if is_deferred(v) else None for v in variables]
    described = [i and (initializers.serialize(i), getattr(i, "seed", None)) for i in own]
    for variable, chosen in zip(variables, collectives.broadcast_object(described), strict=True):
        if chosen is not None:
            config, seed = chosen
            initializer = initializers.deserialize(config)
            if seed is not None:
                initializer.seed = seed
            setattr(variable, _INITIALIZER, initializer)


@contextmanager
def present(variables: Sequence[Any], released: Callable[[Any], bool] = is_deferred) -> Iterator[None]:
    """In this context the released ones of the variables have values: their first ones, or made-up positive numbers."""
    empty = [v for v in variables if released(v)]
    made_up = adapter.keras.initializers.RandomUniform(0.1, 1.0, seed=1)
    for variable in empty:
        adapter.refill(variable, _value(variable, getattr(variable, _INITIALIZER, made_up)))
    try:
        yield
    finally:
        for variable in empty:
            adapter.release(variable)


def layer_by_layer(layers: Iterable[Any], released: Callable[[Any], bool]) -> AbstractContextManager[None]:
    """The context in which the layers compute, eagerly, also with variables that are released: they are there for one call."""

    def computing(layer: Any) -> Callable[..., Any]:
        call = layer.call

        def call_with_values(*args: Any, **kwargs: Any) -> Any:
            with present(layer.variables, released):
                return call(*args, **kwargs)

        return call_with_values

    once = {id(layer): layer for layer in layers}
    return patched(lambda: [(layer, "call", computing(layer)) for layer in once.values()])
