"""Variables that a step changes without an optimizer, such as BatchNormalization's averages, from a rank's own samples.

Ranks take the mean of such weights at the end of an epoch, for validation, and for files. For BatchNormalization this is what
is usual. For anything else, such as a queue of features, it is not what one device has: the log says so, where no trial before
the first step (`trial/kept_state.py`) has refused it, or found out how ranks bring it together.
"""

import weakref
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.reduction import weights

_warned_variables: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # the variables, for each model


def average(model: Any) -> None:
    """Replaces each of these weights that differs between ranks by its mean over them. Collective."""
    differing = weights.average(adapter.moving_statistics(model))
    differing += weights.differing(_variables_of_tensorflow(model))
    usual = {id(weight) for weight in batch_normalization_statistics(model)}
    paths = {adapter.path(variable) for variable in differing if id(variable) not in usual}
    warned = _warned_variables.setdefault(model, set())
    if paths - warned:
        warned.update(paths)
        runtime.logger.warning(
            "variables that differ between ranks: %s. The step changes them by each rank's samples, where one device would do "
            "so by those of the whole batch. Compute them from the samples of all ranks: tnt.all_gather, or tnt.all_reduce, in "
            "the step or layer that assigns them",
            ", ".join(sorted(paths)),
        )


def kept(model: Any) -> list[Any]:
    """The numbers that a step may change without an optimizer and keep, but not BatchNormalization's averages nor seeds."""
    others = {id(variable) for variable in (*batch_normalization_statistics(model), *adapter.seed_variables(model))}
    variables = [*adapter.untrained_weights(model), *_variables_of_tensorflow(model)]
    types = [tf.as_dtype(adapter.dtype_of(variable)) for variable in variables]
    are_numbers = [dtype.is_floating or dtype.is_integer for dtype in types]
    return [v for v, is_number in zip(variables, are_numbers, strict=True) if is_number and id(v) not in others]


def _variables_of_tensorflow(model: Any) -> list[tf.Variable]:
    """Those that are attributes of layers: Keras 3 does not count them among the weights."""
    known = {id(adapter.unwrap(variable)) for variable in (*adapter.weights(model), *adapter.metric_variables(model))}
    attributes = adapter.attributes_of(adapter.layers_of(model))
    return [variable for variable in attributes if isinstance(variable, tf.Variable) and id(variable) not in known]


def batch_normalization_statistics(model: Any) -> list[Any]:
    """The averages that the BatchNormalization layers of a model keep."""
    layers = [layer for layer in adapter.layers_of(model) if isinstance(layer, adapter.keras.layers.BatchNormalization)]
    return [weight for layer in layers for weight in layer.non_trainable_weights]
