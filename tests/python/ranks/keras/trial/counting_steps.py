"""Losses, steps and layers that count their calls or samples, also in inference (checks of `trials`)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check
from layer_trials import BATCH, logged, trained, x, y


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


class Seen(keras.layers.Layer):
    """Counts its calls and samples and keeps a moving average, in training and in inference.

    Args:
        keeps_largest: whether it also keeps what ranks cannot bring together.
    """

    def __init__(self, keeps_largest: bool) -> None:
        super().__init__()
        self.keeps_largest = keeps_largest

    def build(self, shape: Any) -> None:
        names = ("calls", "samples", "average", "largest")
        self.kept = {n: self.add_weight(name=n, shape=(), initializer="zeros", trainable=False) for n in names}

    def call(self, inputs: Any, training: bool = False) -> Any:
        self.kept["calls"].assign_add(1.0)
        self.kept["samples"].assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
        self.kept["average"].assign(0.9 * self.kept["average"] + 0.1 * tf.reduce_mean(inputs))
        if self.keeps_largest and not training:
            self.kept["largest"].assign(tf.reduce_max(inputs))
        return inputs


def seen(keeps_largest: bool = False, **options: Any) -> list[list[float]]:
    """What the layer has kept after each call of the model."""
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    layer = Seen(keeps_largest)
    model = tnt.Model(keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(3)]), **options)
    model.compile(keras.optimizers.SGD(0.02), "mse")
    found = []
    for call in (model.evaluate, model.predict, model.fit):
        data = {"x": x} if call == model.predict else {"x": x, "y": y}
        more = {"validation_data": (x[:9], y[:9]), "shuffle": False} if call == model.fit else {}
        call(**data, batch_size=BATCH, verbose=0, **more)
        found.append([float(tf.convert_to_tensor(value)) for value in layer.kept.values()])
    return found


@check
def inference() -> list[Any]:
    """On the ranks, on these with shards, as plain Keras on rank 0; and the warnings where ranks cannot bring it together."""
    plain = None if tnt.get_rank() else seen(parallel_strategy=tnt.ParallelStrategy.NONE)
    ours, in_shards = seen(), seen(reproducible=4)
    logged.clear()
    seen(keeps_largest=True)
    return [ours, in_shards, plain, [message for message in logged if "neither by their mean nor by a sum" in message]]
