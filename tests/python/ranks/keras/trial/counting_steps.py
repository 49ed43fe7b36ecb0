"""Losses and steps that count their calls, where Keras does not know of it (checks of `trials`)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check
from layer_trials import logged, trained


class WarmedUp(keras.Model):
    """Its loss grows with the number of its steps.

    Args:
        kind: how it counts: ``"number"``, ``"list"``, ``"made later"``; ``"variable"`` does in the loss.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.dense, self.kind = keras.layers.Dense(3), kind
        self.number, self.seen = 0, [0]

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def counted(self) -> int:
        if self.kind == "number":
            self.number += 1
            return self.number
        if self.kind == "list":
            self.seen.append(len(self.seen))
            return self.seen[-1]
        if not hasattr(self, "later"):
            self.later = 0
        self.later += 1
        return self.later

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            loss *= 1.0 if self.kind == "variable" else 0.1 * self.counted()
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"own": loss}


class Annealed:
    """A loss that keeps the number of its calls where nobody looks."""

    def __init__(self) -> None:
        count = tf.Variable(0.0, trainable=False)

        def annealed(truth: Any, prediction: Any) -> Any:
            count.assign_add(1.0)
            return 0.1 * count * tf.reduce_mean(tf.square(prediction - truth), -1)

        self.loss = annealed


def counting(kind: str, **options: Any) -> list[Any]:
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    if kind != "variable":
        return trained(WarmedUp(kind), **options)
    return trained(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]), Annealed().loss, **options)


@check
def counts() -> dict[str, Any]:
    """On all ranks and on rank 0 as plain Keras, too; what could not be tried."""
    found = {}
    for kind in ("number", "list", "made later", "variable"):
        logged.clear()
        ours = counting(kind)
        said = [message for message in logged if "could not be compared" in message]
        plain = {"parallel_strategy": tnt.ParallelStrategy.NONE}
        found[kind] = [ours, None if tnt.get_rank() else counting(kind, **plain), said]
    return found
