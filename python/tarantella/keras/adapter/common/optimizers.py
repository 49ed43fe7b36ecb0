"""Optimizers, where a model keeps them, and their learning rates."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.front_end import LEGACY, keras

_SIMPLE = frozenset([type(None), bool, int, float, str])
"""Types of which most attributes of a model are, and no optimizer is."""
CAN_SHARD_OPTIMIZERS = not LEGACY
"""Whether optimizers of this front end can be built with a part of their state."""


def optimizer_of(model: Any) -> Any:
    """The optimizer that the model was compiled with; None if there is none."""
    return getattr(model, "optimizer", None)


def optimizers_of(optimizer: Any) -> list[Any]:
    """The optimizer and, if it is a LossScaleOptimizer, the one that it wraps."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return [optimizer] if inner is None else [optimizer, inner]


def is_optimizer(value: Any) -> bool:
    """Whether it is one of Keras' optimizers; in legacy Keras of the new kind or the old."""
    return isinstance(value, _optimizer_classes())


@functools.cache
def _optimizer_classes() -> tuple[type, ...]:
    return tuple(optimizer_classes())


def held_optimizers(model: Any) -> list[Any]:
    """All optimizers that the model can use, each once: first the one that it was compiled with.

    The others are attributes of the model, or of a model inside, or stand in a list or dict there. An optimizer inside of a
    LossScaleOptimizer is not one of its own.
    """
    return list(named_optimizers(model).values())


def named_optimizers(model: Any) -> dict[str, Any]:
    """The same, by the names of the attributes: ``"optimizer"``, ``"critic_optimizer"``, ``"optimizers[0]"``."""
    found = {"optimizer": optimizer_of(model)}
    for layer in model._flatten_layers():
        if isinstance(layer, keras.Model):
            prefix = "" if layer is model else f"{layer.name}."
            for name, value in list(vars(layer).items()):
                if not name.startswith("_self_"):  # where legacy Keras lists the contents of TensorFlow's checkpoints
                    found.update((f"{prefix}{name}{place}", one) for place, one in _optimizers_in(value, set()))
    inside = {id(inner) for optimizer in found.values() for inner in optimizers_of(optimizer)[1:]}
    seen: set[int] = {id(None)}
    once = {}
    for name, optimizer in found.items():
        if id(optimizer) not in seen | inside:
            seen.add(id(optimizer))
            once[name] = optimizer
    return once


def _optimizers_in(value: Any, containers: set[int]) -> Iterator[tuple[str, Any]]:
    """Each with its place, ``"[0]"``. Keys of others are not written: their text may take a variable's value."""
    if type(value) in _SIMPLE:  # soon said: callbacks of the user's own have this asked at each step
        return
    if is_optimizer(value):
        yield "", value
    elif isinstance(value, (Mapping, list, tuple)) and id(value) not in containers:
        containers.add(id(value))
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            for place, optimizer in _optimizers_in(item, containers):
                yield f"[{key!r}]{place}", optimizer


def trained_by(optimizers: list[Any]) -> list[Any]:
    """The variables that built optimizers change, as far as they know: legacy Keras' do not."""
    owners = [owner for optimizer in optimizers for owner in optimizers_of(optimizer)]
    return [] if LEGACY else [variable for owner in owners for variable in getattr(owner, "_trainable_variables", ())]


def optimizer_classes() -> list[type]:
    """The classes whose method (`optimizer_hook`) changes variables, whatever optimizer is applied."""
    return [keras.optimizers.Optimizer, *([keras.optimizers.legacy.Optimizer] if LEGACY else [])]


def taking_pairs(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A replacement for a method `apply_gradients` that calls a function of gradients and variables."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def apply_gradients(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        if args:
            kwargs["name"] = args[0]
        return apply([gradient for gradient, _ in pairs], [variable for _, variable in pairs], **kwargs)

    apply_gradients._tnt_apply = apply
    return apply_gradients  # type: ignore[no-any-return]


def learning_rates(model: Any) -> list[tf.Variable]:
    """The variables of the learning rates that a callback may set. A schedule has none.

    The private attribute tells a variable from a schedule; the public ``learning_rate`` evaluates the schedule.
    """
    owners = [owner for optimizer in held_optimizers(model) for owner in optimizers_of(optimizer)]
    rates = [getattr(owner, "_learning_rate", None) for owner in owners]
    variables = [getattr(rate, "value", rate) if not isinstance(rate, tf.Variable) else rate for rate in rates]
    return [variable for variable in variables if isinstance(variable, tf.Variable)]


def is_slot(variable: Any) -> bool:
    """Whether it is of an optimizer's state and one rank alone holds its value; the others know name, shape and type."""
    return getattr(variable, "_tnt_owner", None) is not None
