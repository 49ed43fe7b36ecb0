"""Layers and steps of the user's own: what they may do with the samples of a batch (checks of `trials`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, log_messages, raised

SAMPLES, BATCH = 20, 7
x = np.random.default_rng(1).normal(size=(SAMPLES, 4)).astype(np.float32)
y = np.random.default_rng(2).normal(size=(SAMPLES, 3)).astype(np.float32)
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
logged = log_messages()


class Own(keras.layers.Layer):
    """kind: what it does with the samples."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def call(self, inputs: Any) -> Any:
        if self.kind == "centred":
            return inputs - tf.reduce_mean(inputs, 0)
        if self.kind == "product":
            return inputs * tf.tensordot(inputs, inputs, 2)
        if self.kind == "added sum":
            self.add_loss(0.1 * tf.reduce_sum(tf.square(inputs)))
        if self.kind == "added mean":
            self.add_loss(0.1 * tf.reduce_mean(tf.square(inputs)))
        return inputs


def pairs(rows: Any) -> Any:
    """A regularizer of activities that takes products of samples."""
    return 0.1 * tf.reduce_sum(tf.square(tf.matmul(rows, rows, transpose_b=True)))


def model_of(kind: str) -> Any:
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    how = {"activity_regularizer": pairs} if kind == "regularizer" else {}
    middle = keras.layers.Lambda(lambda rows: rows - tf.reduce_mean(rows, 0)) if kind == "lambda" else Own(kind)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, **how), middle, keras.layers.Dense(3)])


def trained(model: Any, loss: Any = "mse", **options: Any) -> list[Any]:
    model = tnt.Model(model, **options)
    model.compile(keras.optimizers.SGD(0.02), loss, run_eagerly=True)
    history = model.fit(data, epochs=1, verbose=0, validation_data=data).history
    return [*history.values(), *(np.asarray(v).tolist() for v in model.trainable_variables)]


@check
def layers_that_couple() -> dict[str, list[str]]:
    kinds = ("centred", "product", "regularizer", "lambda")
    return {kind: raised(trained, model_of(kind)) for kind in kinds}


@check
def layers_that_do_not() -> dict[str, list[Any]]:
    unreduced = keras.losses.MeanSquaredError(reduction="none")
    cases = {kind: ((lambda kind=kind: model_of(kind)), "mse") for kind in ("nothing", "added mean", "added sum")}
    return {name: both(*case) for name, case in {**cases, "unreduced": (reducing_step, unreduced)}.items()}


def both(make: Callable[[], Any], loss: Any) -> list[Any]:
    """On all ranks, and on rank 0 as plain Keras, too."""
    ours = trained(make(), loss)
    return [ours, None if tnt.get_rank() else trained(make(), loss, parallel_strategy=tnt.ParallelStrategy.NONE)]


def reducing_step() -> Any:
    class ReducingStep(keras.Model):
        """Takes the mean of what a loss without a reduction gives."""

        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self.loss(data[1], self(data[0], training=True)))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"now": loss}

        def test_step(self, data: Any) -> Any:
            return {"now": tf.reduce_mean(self.loss(data[1], self(data[0])))}

    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,))
    return ReducingStep(inputs, keras.layers.Dense(3)(inputs))


class OfTwoRows(keras.Model):
    """The first axis of its batches is none of samples: it has the anchors, and what is near them."""

    def __init__(self) -> None:
        super().__init__()
        self.out = keras.layers.Dense(2)

    def call(self, rows: Any) -> Any:
        return self.out(rows)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(data[0]) - self(data[1])))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"now": loss}


@check
def no_axis_of_samples() -> list[Any]:
    """The kind of the error, and what was said before."""
    logged.clear()
    model = tnt.Model(OfTwoRows())
    model.compile("sgd", run_eagerly=True)
    error = raised(model.fit, tf.data.Dataset.from_tensors(np.ones((2, 5, 4), np.float32)), verbose=0)
    return [error[:1], [message for message in logged if "of the first batch, and not on" in message]]


class Keeps(keras.Model):
    """Keeps something of the batches in a weight, and in a variable that Keras 3 does not know; uses it in the next step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.out, self.kind = keras.layers.Dense(3), kind
        self.rows = self.add_weight(shape=(4,), initializer="zeros", trainable=False, name="rows")
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False, name="count", dtype="int32")
        self.inner = tf.Variable(tf.zeros([4]), trainable=False, name="inner")

    def call(self, inputs: Any, training: bool = False) -> Any:
        outputs = self.out(inputs + 0.1 * tf.convert_to_tensor(self.rows) + 0.01 * self.inner)
        if training:
            self.changed(tnt.all_gather(inputs) if self.kind == "gathered" else inputs)
        return outputs

    def changed(self, inputs: Any) -> None:
        if self.kind == "sums":
            self.rows.assign(self.rows + 0.1 * tf.reduce_sum(inputs, 0))
            self.count.assign(self.count + tf.shape(inputs)[0])
        elif self.kind == "largest":
            self.rows.assign(tf.reduce_max(inputs, 0))
        else:
            self.rows.assign(0.9 * tf.convert_to_tensor(self.rows) + 0.1 * tf.reduce_mean(inputs, 0))
        self.inner.assign(self.inner + tf.reduce_sum(tf.square(self.out.kernel)))


def kept(kind: str, **options: Any) -> list[Any]:
    keras.backend.clear_session()  # layers get the same names on all ranks
    keras.utils.set_random_seed(3)
    model = Keeps(kind)
    found = trained(model, **options)
    return [*found, np.asarray(model.rows).tolist(), int(np.asarray(model.count)), np.asarray(model.inner).tolist()]


@check
def what_a_step_keeps() -> dict[str, list[Any]]:
    """On all ranks, and on rank 0 as plain Keras, too."""
    found = {}
    for kind in ("means", "sums", "gathered"):
        ours = kept(kind)
        plain = {"parallel_strategy": tnt.ParallelStrategy.NONE}
        found[kind] = [ours, None if tnt.get_rank() else kept("means" if kind == "gathered" else kind, **plain)]
    return found


@check
def what_ranks_cannot_keep() -> list[Any]:
    """The error, and what is said if the user accepts it."""
    error = raised(kept, "largest")
    logged.clear()
    kept("largest", accept_approximate=True)
    return [error, list(logged)]
