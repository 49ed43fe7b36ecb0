"""Trains models with `jit_compile=True`; with --serial in plain Keras without it, if XLA draws no random numbers.

xla.py FOLDER [--serial]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from recipes import batched, cnn_data, mlp_data, random
from training import Case, Job, Outcome, run_all

BATCH = 61
RAGGED = ("sequential", "functional", "with_local_state", "recurrent")
"""Whose last batch is of another size, for which XLA compiles all again; the others' data has whole batches."""
ALSO_EVALUATED = ("sequential", "with_local_state", "subclassed", "recurrent")
"""Each call is a program of its own for XLA, and few kinds of models are enough for those of `evaluate` and `predict`."""
CLASSES = keras.losses.SparseCategoricalCrossentropy
made: dict[str, tuple[Callable[[], keras.Model], Callable[[], Any], Any]] = {}


def model(data: Callable[[], Any] = mlp_data, loss: Any = "mse") -> Callable[[Callable[[], keras.Model]], Any]:
    """The function makes a model that is trained on the data."""

    def note(make: Callable[[], keras.Model]) -> Callable[[], keras.Model]:
        made[make.__name__] = make, data, loss
        return make

    return note


def train(name: str, jit: bool, job: Job) -> Outcome:
    make, data, loss = made[name]
    arrays = data() if name in RAGGED else tuple(array[: len(array) // BATCH * BATCH] for array in data())
    same_batch = {"tnt_distribute_dataset": False} if name == "with_local_state" and not job.serial else {}
    trained, outcome = job.train(
        make(),
        batched(arrays, BATCH),
        optimizer=keras.optimizers.SGD(0.02, momentum=0.9),
        loss=loss,
        epochs=2,
        compiling={"metrics": ["accuracy"] if callable(loss) else None, "jit_compile": jit},
        by_step=True,
        **same_batch,
    )
    if name in ALSO_EVALUATED:
        outcome.add("evaluate", trained.evaluate(batched(arrays, BATCH), verbose=0))
        outcome.add("predict", trained.predict(arrays[0], batch_size=BATCH, verbose=0))
    outcome.add("state", [v.numpy() for v in trained.non_trainable_variables])
    return outcome


# ------------------------------------------------------------------------------------------------------- models


@model()
def sequential() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), *(layers.Dense(16, activation="tanh") for _ in range(4)), layers.Dense(3)])


class SharedDropout(layers.Dropout):
    """Has the same mask on all ranks."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        with tnt.same_noise():
            return super().call(inputs, training=training)


def convolutions(rate: float, **normalization: Any) -> keras.Model:
    """Two branches, one in a model of its own."""
    inputs = keras.Input((8, 8, 3))
    x = layers.Conv2D(6, 3, padding="same")(inputs)
    x = layers.BatchNormalization(**normalization)(x)
    x = layers.Activation("gelu")(x)
    inner = [layers.Conv2D(6, 3, padding="same", activation="gelu"), layers.Conv2D(6, 1)]
    x = layers.Add()([x, keras.Sequential([keras.Input((8, 8, 6)), *inner])(x)])
    x = SharedDropout(rate)(layers.Flatten()(layers.AveragePooling2D(2)(x)))
    return keras.Model(inputs, layers.Dense(5)(keras.ops.sin(x)))


@model(cnn_data, CLASSES(from_logits=True))
def functional() -> keras.Model:
    return convolutions(0.0, trainable=False)


@model(cnn_data, CLASSES(from_logits=True))
def with_local_state() -> keras.Model:
    """What it draws and averages depends on which samples a rank has: here each has all."""
    return convolutions(0.4)


class Block(layers.Layer):
    """Has a loss of its own, and leaves a tensor that nobody may need."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(16, activation="tanh", activity_regularizer=keras.regularizers.L2(0.01))

    def build(self, shape: Any) -> None:
        self.hidden.build(shape)
        self.calls = self.add_weight(name="calls", dtype="int32", trainable=False, initializer="zeros", shape=())

    def call(self, x: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign_add(1)
        y = self.hidden(x)
        self.add_loss(0.1 * tf.reduce_mean(tf.abs(y)))
        self.last = y
        return y


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = [Block(), Block()]
        self.out = layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        for block in self.blocks:
            x = block(x, training=training)
        self.hidden = x
        return {"y": self.out(x), "none": None}["y"]


@model()
def subclassed() -> keras.Model:
    return Subclassed()


class OwnStep(Subclassed):
    """Uses what a call left in the layers, and a gradient inside of its loss."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                y_pred = self(x, training=True)
            slope = inner.gradient(y_pred, x)
            loss = self.compute_loss(y=y, y_pred=y_pred) + sum(self.losses) + tf.reduce_mean(tf.square(slope))
            loss += tf.reduce_mean(tf.square(self.hidden)) + tf.reduce_mean(tf.square(self.blocks[0].last))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@model()
def own_step() -> keras.Model:
    return OwnStep()


class Parts(keras.Model):
    """Its step calls the models in it, never the whole."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = sequential(), keras.Sequential([layers.Dense(9, activation="tanh"), layers.Dense(3)])

    def build(self, shape: Any) -> None:
        self.encoder.build(shape)
        self.decoder.build((None, 3))

    def call(self, x: Any) -> Any:
        return self.decoder(self.encoder(x))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self.decoder(self.encoder(x, training=True), training=True) - y))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


@model()
def parts() -> keras.Model:
    return Parts()


def words() -> tuple[np.ndarray, np.ndarray]:
    x = random().integers(0, 6, (245, 7)).astype(np.int32)
    return x, x.mean(1, keepdims=True).astype(np.float32) * np.ones(3, np.float32)


@model(words)
def recurrent() -> keras.Model:
    """A mask goes from segment to segment, and one of them has a loop."""
    inputs = keras.Input((7,), dtype="int32")
    x = layers.Dense(6, activation="tanh")(layers.Embedding(6, 5, mask_zero=True)(inputs))
    x = layers.LSTM(5)(x)
    return keras.Model(inputs, layers.Dense(3)(layers.Dense(4, activation="tanh")(x)))


class Branch(layers.Layer):
    def build(self, shape: Any) -> None:
        self.sign = self.add_weight(name="sign", trainable=False, initializer="ones", shape=())

    def call(self, x: Any) -> Any:
        return tf.cond(self.sign > 0, lambda: tf.sin(x), lambda: tf.cos(x))


@model()
def branching() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="tanh"), Branch(), layers.Dense(3)])


class Calculating(layers.Layer):
    """Of what it calls, XLA has nothing."""

    def call(self, x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(np.tanh, [x], tf.float32), x.shape) + x


@model()
def not_for_xla() -> keras.Model:
    return keras.Sequential([keras.Input((8,)), Calculating(), layers.Dense(16, activation="tanh"), layers.Dense(3)])


def main(folder: str, *words: str) -> None:
    job = Job.of("--serial" in words)
    draws = ("with_local_state",)  # XLA draws other random numbers than TensorFlow
    cases: dict[str, Case] = {name: partial(train, name, not job.serial or name in draws) for name in made}
    run_all(cases, job, Path(folder))


main(*sys.argv[1:])
