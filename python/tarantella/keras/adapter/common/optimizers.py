"""Optimizers and their learning rates."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def optimizer_of(model: Any) -> Any:
    """The optimizer that the model was compiled with; None if there is none."""
    return getattr(model, "optimizer", None)


def optimizers_of(optimizer: Any) -> list[Any]:
    """The optimizer and, if it is a LossScaleOptimizer, the one that it wraps."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return [optimizer] if inner is None else [optimizer, inner]


def learning_rates(model: Any) -> list[tf.Variable]:
    """The variables of the learning rates that a callback may set. A schedule has none.

    The private attribute tells a variable from a schedule; the public ``learning_rate`` evaluates the schedule.
    """
    optimizer = optimizer_of(model)
    rates = [getattr(o, "_learning_rate", None) for o in ([] if optimizer is None else optimizers_of(optimizer))]
    variables = [getattr(rate, "value", rate) if not isinstance(rate, tf.Variable) else rate for rate in rates]
    return [variable for variable in variables if isinstance(variable, tf.Variable)]
