"""Zeros that hide what a model computes: a factor that a callback raises later, a gate that begins closed, a head of zeros.

Where a layer of the user's own has such variables, it is tried again with other numbers in them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.trial.run import Tried

_SMALL = 4096  # elements: more are not copied to be looked at


def zeros_of(model: Any) -> list[tf.Variable]:
    """The numbers and tables that are zero: factors and kernels, and no biases.

    None of a pipeline whose ranks have memory for different weights: all ranks must have the same trials.
    """
    if any(map(_has_no_memory, map(adapter.unwrap, adapter.weights(model)))):
        return []
    owners = [layer for layer in adapter.layers_of(model) if not adapter.is_builtin(layer)]
    known = {id(adapter.unwrap(v)) for v in (*adapter.metric_variables(model), *adapter.whole_optimizer_variables(model))}
    own = map(adapter.unwrap, filter(adapter.is_variable, adapter.attributes_of(owners)))
    numbers = [v for v in own if v.shape.num_elements() == 1 and id(v) not in known]
    tables = [adapter.unwrap(v) for v in adapter.trainable_variables(model) if len(v.shape) > 1 and "lora" not in v.name]
    found = {id(v): v for v in (*tables, *numbers) if v.dtype.is_floating and v.shape.is_fully_defined()}
    return [variable for variable in found.values() if _is_zero(variable)]


def _has_no_memory(variable: tf.Variable) -> bool:
    elements = tf.raw_ops.VariableShape(input=variable.handle).numpy().prod()
    return bool(variable.shape.is_fully_defined() and elements != variable.shape.num_elements())


def _is_zero(variable: tf.Variable) -> bool:
    if variable.shape.num_elements() <= _SMALL:
        return not np.any(variable.numpy())
    numbers = tf.reshape(variable, [-1])
    return not np.any(numbers[:_SMALL].numpy()) and not bool(tf.reduce_any(numbers != 0))


def switched_on(tried: Tried, variables: Sequence[tf.Variable]) -> Tried:
    """The same model, in which these variables are not zero."""

    def restore() -> None:
        tried.restore()
        for variable in variables:
            places = np.arange(variable.shape.num_elements(), dtype=np.float64).reshape(variable.shape)
            variable.assign(tf.cast(0.5 + 0.5 * np.cos(places), variable.dtype))

    return tried._replace(restore=restore)
