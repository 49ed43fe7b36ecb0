"""Optimizers of TensorFlow 1, whose `compute_gradients` reduces; `minimize` calls it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.horovod.tensorflow.gradients import Choices, HorovodReduction
from tarantella.keras.reduction import ops


def distribute(optimizer: Any, choices: Choices) -> None:
    """Changes the optimizer, whose class stays.

    Raises:
        ValueError: it was given before.
    """
    if "compute_gradients" in vars(optimizer):
        raise ValueError("hvd.DistributedOptimizer: the optimizer reduces gradients already: wrap it once")
    original = optimizer.compute_gradients

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def compute_gradients(*args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        pairs = original(*args, **kwargs)
        variables = [variable for _, variable in pairs]
        with as_horovod(), ops.translated_errors():
            reduced = HorovodReduction(choices).reduce_gradients([gradient for gradient, _ in pairs], variables)
        return list(zip(reduced, variables, strict=True))

    optimizer.compute_gradients = compute_gradients
    optimizer.register_local_var = choices.register_local_var
