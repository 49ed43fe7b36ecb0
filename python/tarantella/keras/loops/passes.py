"""Gradients of several calls of an optimizer of legacy Keras, which cannot add them up by itself as Keras 3 does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.reduction import gradients, graph_order


class Passes:
    """Adds up this rank's gradients, and applies their mean in each k-th call: only then do ranks exchange anything."""

    def __init__(self, optimizer: Any, passes: int) -> None:
        self._optimizer = optimizer
        self._passes = passes
        self._sums: list[tf.Variable] = []
        self._calls: tf.Variable | None = None

    def apply(self, apply: Callable[..., Any], grads: Sequence[Any], variables: Sequence[Any], **kwargs: Any) -> Any:
        """apply: what applies the mean.

        Returns:
            The optimizer's `iterations`, which count all calls: schedules of the learning rate run by batches.
        """
        with tf.init_scope():
            calls = self._prepare(variables)
        for total, gradient, variable in zip(self._sums, grads, variables, strict=True):
            if gradient is not None:
                total.assign_add(gradients.dense(gradient, variable))
        calls.assign_add(1)

        def update() -> bool:
            means = [total / tf.cast(self._passes, total.dtype) for total in self._sums]
            apply([None if g is None else mean for g, mean in zip(grads, means, strict=True)], variables, **kwargs)
            for total in self._sums:
                total.assign(tf.zeros_like(total))
            return True

        def count() -> bool:
            self._optimizer.iterations.assign_add(1)
            return False

        with graph_order.after_last():
            updated = tf.cond(tf.equal(calls % self._passes, 0), update, count)
        graph_order.record([updated])
        return self._optimizer.iterations

    def _prepare(self, variables: Sequence[Any]) -> tf.Variable:
        if self._calls is None:
            adapter.build_optimizer(self._optimizer, variables)  # not inside of a branch
            self._sums = [tf.Variable(tf.zeros(v.shape, v.dtype), trainable=False) for v in variables]
            self._calls = tf.Variable(0, trainable=False, dtype=tf.int64)
        return self._calls
