"""``global_clipnorm`` of an optimizer in a pipeline: the norm of all stages' gradients, of which each rank has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.pipeline.updates import Updates
from tarantella.keras.reduction import collectives


def by_global_norm(norm: float, grads: Sequence[Any], updates: Updates, trained_variables: Sequence[Any]) -> list[Any]:
    """This rank's gradients, scaled so that the norm of all stages' gradients is at most `norm`.

    Collective on the ranks that together update each variable once.

    The squares are added up as Keras does it on one device: for each variable alone, then in the order of the model, without
    the variables that have no gradient. So the bits are the same.

    Args:
        grads: of the variables that this rank updates; None where there is none.
        trained_variables: all of them, of all stages.
    """
    ops = adapter.keras.ops
    own = {id(v): g for v, g in zip(updates.trained, grads, strict=True) if g is not None and updates.owns(v)}
    zero = tf.constant(0.0, tf.float64)
    squares = [tf.cast(ops.sum(ops.square(own[id(v)])), tf.float64) if id(v) in own else zero for v in trained_variables]
    has_gradient = [tf.constant(float(id(v) in own), tf.float64) for v in trained_variables]
    table = collectives.all_reduce(tf.stack([tf.stack(squares), tf.stack(has_gradient)]), "sum", updates.group_of_norm)
    dtype = adapter.keras.backend.result_type(*[adapter.dtype_of(v) for v in trained_variables])
    found = ops.sqrt(ops.sum(tf.cast(tf.boolean_mask(table[0], table[1] > 0), dtype)))
    scale = norm * ops.minimum(1.0 / found, 1.0 / norm) + (found - found)  # NaN if the norm is not finite, as in Keras
    return [None if g is None else g * tf.cast(scale, g.dtype) for g in grads]


@contextmanager
def already_done(optimizer: Any) -> Iterator[None]:
    """The optimizer does not clip by a global norm in this context."""
    kept, optimizer.global_clipnorm = optimizer.global_clipnorm, None
    try:
        yield
    finally:
        optimizer.global_clipnorm = kept
