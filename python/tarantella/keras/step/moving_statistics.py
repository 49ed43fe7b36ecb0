"""Variables that a step changes without an optimizer, such as BatchNormalization's averages, from a rank's own samples.

Ranks take the mean of such weights at the end of an epoch, for validation, and for files. For BatchNormalization this is what
is usual. For anything else, such as a queue of features or a table of codes, it is not what one device has: the log says so.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.reduction import weights

_warned: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # the variables, for each model


def average(model: Any) -> None:
    """Replaces each of these weights that differs between ranks by its mean over them. Collective."""
    layers = adapter.layers_of(model)
    differing = weights.average(adapter.moving_statistics(model))
    known = {id(adapter.unwrap(variable)) for variable in (*adapter.weights(model), *adapter.metric_variables(model))}
    # Keras 3 does not count TensorFlow's variables among the weights
    others = [v for v in adapter.attributes_of(layers) if isinstance(v, tf.Variable) and id(v) not in known]
    differing += weights.differing(others)
    usual = {id(weight) for weight in of_batch_normalization(model)}
    paths = {adapter.path(variable) for variable in differing if id(variable) not in usual}
    warned = _warned.setdefault(model, set())
    if paths - warned:
        warned.update(paths)
        runtime.logger.warning(
            "variables that differ between ranks: %s. The step changes them by each rank's samples, where one device would do "
            "so by those of the whole batch. Compute them from the samples of all ranks: tnt.all_gather, or tnt.all_reduce, in "
            "the step or layer that assigns them",
            ", ".join(sorted(paths)),
        )


def of_batch_normalization(model: Any) -> list[Any]:
    """The averages that the BatchNormalization layers of a model keep."""
    layers = [layer for layer in adapter.layers_of(model) if isinstance(layer, adapter.keras.layers.BatchNormalization)]
    return [weight for layer in layers for weight in layer.non_trainable_weights]
