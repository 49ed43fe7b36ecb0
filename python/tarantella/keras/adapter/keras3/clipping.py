"""Clipping of gradients by the norm of all of them, where each rank has some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras.src.optimizers import base_optimizer

from tarantella.keras.adapter.front_end import keras


def clips_by_norm_of_all(optimizer: Any) -> bool:
    """Whether the optimizer scales its gradients by a norm of all of them."""
    return bool(optimizer.global_clipnorm)


def clipping_of_parts(
    optimizer: Any, is_here: Callable[[Any], bool], total: Callable[[Any], Any]
) -> list[tuple[Any, str, Any]]:
    """A patch (owner, attribute, value) by which the optimizer clips the gradients that a rank has, by the norm of all.

    The squares of each gradient are added up by the rank that has it, and the sums are added up as Keras does: the bits are
    those of one device.

    Args:
        is_here: whether this rank has the gradient of a variable.
        total: the sums over ranks of some numbers.
    """
    apply_gradients, clip = optimizer._backend_apply_gradients, optimizer._clip_gradients
    applied: list[Any] = []

    def _backend_apply_gradients(grads: Any, trainable_variables: Any) -> Any:
        applied[:] = trainable_variables
        return apply_gradients(grads, trainable_variables)

    def global_norm(grads: Any) -> Any:
        ops = keras.ops
        squares = [
            ops.sum(ops.square(g)) if is_here(v) else ops.zeros((), g.dtype) for g, v in zip(grads, applied, strict=True)
        ]
        return ops.sqrt(ops.sum(total(ops.stack(squares))))

    def _clip_gradients(grads: Any) -> Any:
        original = base_optimizer.global_norm
        base_optimizer.global_norm = global_norm
        try:
            return clip(grads)
        finally:
            base_optimizer.global_norm = original

    return [
        (optimizer, "_backend_apply_gradients", _backend_apply_gradients),
        (optimizer, "_clip_gradients", _clip_gradients),
    ]
