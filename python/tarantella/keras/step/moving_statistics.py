"""Variables that a step changes without an optimizer, such as BatchNormalization's averages, from a rank's own samples.

Ranks take the mean of such weights at the end of an epoch, for validation, and for files. For BatchNormalization this is what
is usual. For anything else, such as a queue of features, it is not what one device has: the log says so, where no trial before
the first step (`trial/kept_state.py`) has refused it, or found out how ranks bring it together.
"""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.keras import adapter
from tarantella.keras.reduction import weights
from tarantella.keras.xla import operations

_warned_variables: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # the variables, for each model
_unknown: weakref.WeakKeyDictionary[Any, list[tf.Variable]] = weakref.WeakKeyDictionary()  # as `note_unknown` found them


def average(model: Any) -> None:
    """Replaces each of these weights that differs between ranks by its mean over them. Collective."""
    differing = weights.average(adapter.moving_statistics(model))
    differing += weights.differing([*attributes(model), *attributes_of_optimizers(model)])
    unknown = _unknown.get(model, [])
    most, least = collectives.all_reduce(np.array([len(unknown), -len(unknown)]), "max")
    if most == -least:  # ranks have traced the same
        differing += weights.differing(unknown)
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


def note_unknown(model: Any, graph: Any) -> None:
    """A training step was traced. It may change variables of which the model does not know: numbers, and no random states."""
    changed = operations.changed_unknown(graph, known(model))
    _unknown[model] = [v for v in changed if v.dtype.is_floating or (v.dtype.is_integer and v.shape.rank == 0)]


def _is_number(variable: Any) -> bool:
    dtype = tf.as_dtype(adapter.dtype_of(variable))
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool)


def known(model: Any) -> Sequence[Any]:
    """The variables of the model, its metrics, optimizers and random generators, and attributes of layers and optimizers."""
    seeds = [*adapter.seed_variables(model), *adapter.common_seed_variables()]
    of_optimizers = [v for v in adapter.optimizer_variables(model) if not adapter.is_slot(v) or v.is_here]
    owned = [*adapter.weights(model), *adapter.metric_variables(model), *of_optimizers, *seeds]
    return [*owned, *adapter.step_counters(model), *attributes(model), *attributes_of_optimizers(model)]


def kept(model: Any) -> list[Any]:
    """The numbers that a step may change without an optimizer and keep, but not BatchNormalization's averages nor seeds."""
    others = {id(variable) for variable in (*batch_normalization_statistics(model), *adapter.seed_variables(model))}
    variables = [*adapter.untrained_weights(model), *attributes(model)]
    types = [tf.as_dtype(adapter.dtype_of(variable)) for variable in variables]
    are_numbers = [dtype.is_floating or dtype.is_integer for dtype in types]
    return [v for v, is_number in zip(variables, are_numbers, strict=True) if is_number and id(v) not in others]


def attributes(model: Any) -> list[tf.Variable]:
    """Numbers in variables of TensorFlow that are attributes of layers: Keras 3 does not count them among the weights."""
    return _numbers_in(adapter.layers_of(model), model)


def attributes_of_optimizers(model: Any) -> list[tf.Variable]:
    """The same of optimizers, of whose state Keras 3 does not count them."""
    optimizers = [one for held in adapter.held_optimizers(model) for one in adapter.optimizers_of(held)]
    return _numbers_in(optimizers, model)


def _numbers_in(owners: Sequence[Any], model: Any) -> list[tf.Variable]:
    of_keras = [*adapter.weights(model), *adapter.metric_variables(model), *adapter.whole_optimizer_variables(model)]
    seen = {id(adapter.unwrap(v)) for v in (*of_keras, *adapter.step_counters(model))}
    found = {}
    for value in adapter.attributes_of(owners):
        if isinstance(value, tf.Variable) and _is_number(value) and id(value) not in seen and not adapter.is_slot(value):
            found[id(value)] = value
    return list(found.values())


def batch_normalization_statistics(model: Any) -> list[Any]:
    """The averages that the BatchNormalization layers of a model keep."""
    layers = [layer for layer in adapter.layers_of(model) if isinstance(layer, adapter.keras.layers.BatchNormalization)]
    return [weight for layer in layers for weight in layer.non_trainable_weights]
