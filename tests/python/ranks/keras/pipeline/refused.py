"""What a pipeline refuses."""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.framework import config

import tarantella as tnt
from checks import check, raised, run
from pipelines import FOLDER, MICRO_BATCHES, PIPELINING, RANK, dense, mlp
from tarantella.keras import adapter
from tarantella.keras.pipeline import fusion


class Computes(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.predict(np.ones((4, 4), "f4"), verbose=0)


class Loads(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_begin(self, logs: Any = None) -> None:
        self.model.load_weights(FOLDER / "none.weights.h5")


class Coupled(keras.optimizers.SGD):  # type: ignore[misc]
    """Scales each gradient by those before it."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.seen = self.add_variable((), name="seen")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.seen.assign_add(keras.ops.sum(keras.ops.square(gradient)))
        super().update_step(gradient / (1.0 + self.seen), variable, learning_rate)


class Subclassed(keras.Model):
    def call(self, inputs: Any) -> Any:
        return inputs


class Logging(keras.Sequential):
    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return {**super().compute_metrics(x, y, y_pred, sample_weight), "largest": keras.ops.max(y_pred)}


def fails(model: Any, loss: Any = "mse", callbacks: Any = None, optimizer: Any = "sgd", **arguments: Any) -> list[str]:
    compiled = {"jit_compile": arguments.pop("jit_compile")} if "jit_compile" in arguments else {}

    def fit() -> None:
        made = tnt.Model(model, PIPELINING, **arguments)
        made.compile(optimizer=optimizer, loss=loss, **compiled)
        made.fit(np.ones((8, 4), "f4"), np.ones((8, 1), "f4"), batch_size=4, callbacks=callbacks, verbose=0)

    return raised(fit)


def fails_with_xla() -> list[str]:
    """Keras takes jit_compile=True back, with a warning, while operations are deterministic, as after earlier checks."""
    config.disable_op_determinism()
    try:
        return fails(dense(layers.Dense(3)), jit_compile=True)
    finally:
        config.enable_op_determinism()


def noisy(draw: Any) -> Any:
    """A model with a layer that adds noise."""
    noise = layers.Lambda(lambda t: t + draw(keras.ops.shape(t)), output_shape=(4,), name="noise")
    return dense(noise, layers.Dense(3))


def noisy_loss(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y_true - y_pred + keras.random.normal((1,))), -1)


@check
def noise_refused() -> dict[str, list[str]]:
    """Random numbers of generators that no layer holds: a rank would draw others than one device."""
    outside, of_tf = keras.random.SeedGenerator(3, name="outside"), tf.random.Generator.from_seed(1)
    later = layers.Lambda(lambda t, training=False: t if training else t + keras.random.normal((1,)), output_shape=(3,))
    return {
        "common": fails(noisy(lambda shape: keras.random.normal(shape))),
        "hidden": fails(noisy(lambda shape: tf.random.normal(shape))),
        "of TensorFlow": fails(noisy(lambda shape: of_tf.normal(shape))),
        "outside": fails(noisy(lambda shape: keras.random.normal(shape, seed=outside))),
        "loss": fails(dense(layers.Dense(3)), loss=noisy_loss),
        "constant": fails(noisy(lambda shape: tf.random.stateless_normal(shape, (1, 2)))),
        "layers": fails(dense(layers.Dense(3), layers.Dropout(0.5), layers.GaussianNoise(0.1))),
        "only outside of training": fails(dense(layers.Dense(3), later)),
    }


@check
def divided() -> dict[str, Any]:
    """Cuts between neighbours that TensorFlow computes as one."""

    def bent() -> Any:
        return dense(layers.Dense(3, name="straight"), layers.Dropout(0.1), layers.Activation("tanh", name="bent"))

    calls = adapter.layer_calls(adapter.layer_graph(bent()))
    of_mlp = adapter.layer_calls(adapter.layer_graph(mlp()[0]))
    return {
        "by name": fails(bent(), pipeline_stages=["bent"], reproducible=MICRO_BATCHES),
        "not reproducible": fails(bent(), pipeline_stages=["bent"]),
        "after both": fails(bent(), pipeline_stages=["last"], reproducible=MICRO_BATCHES),
        "places": sorted(fusion.places(calls)),
        "places of the mlp": sorted(fusion.places(of_mlp)),
    }


class Counting(layers.Layer):
    """Counts the samples that it sees."""

    def build(self, shape: Any) -> None:
        self.samples = self.add_weight(name="samples", shape=(), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.samples.assign_add(tf.cast(tf.shape(inputs)[0], tf.float32))
        return inputs


@check
def refused() -> dict[str, list[str]]:
    shared = layers.BatchNormalization(name="shared")
    inputs = keras.Input((4,))
    branches = [layers.Dense(2)(inputs), layers.Dense(2)(inputs)]
    parallel = keras.Model(inputs, layers.Dense(1, name="end")(layers.Dense(3, name="joint")(layers.Add(name="sum")(branches))))
    clip = keras.optimizers.SGD(global_clipnorm=1.0, gradient_accumulation_steps=2)
    twice = layers.Dense(4, name="twice", kernel_regularizer="l2")
    used = dense(twice, layers.Dense(4, name="between"), twice)
    second = adapter.layer_calls(parallel)[1].operation.name
    return {
        "subclassed": fails(Subclassed()),
        "own metrics": fails(Logging([keras.Input((4,)), layers.Dense(3), layers.Dense(1)])),
        "too few layers": fails(dense()),
        "shared": fails(dense(layers.Dense(4), shared, layers.Dense(4, name="between"), shared), pipeline_stages=["between"]),
        "three parts": fails(used, pipeline_stages=["between"], reproducible=MICRO_BATCHES),
        "no variables": fails(dense(layers.Dense(3), layers.ReLU(name="relu")), pipeline_stages=["last"], schedule="x"),
        "no data": fails(parallel, pipeline_stages=[second, "sum", "end"], schedule="interleaved"),
        "unknown": fails(dense(layers.Dense(3)), pipeline_stages=["nowhere"]),
        "clip": fails(dense(layers.Dense(3)), optimizer=clip),
        "callback": fails(dense(layers.Dense(3)), callbacks=[Computes()]),
        "loads": fails(dense(layers.Dense(3)), callbacks=[Loads()]),
        "hook": fails(dense(layers.Dense(3)), bucket_hook=print),
        "ranks": fails(dense(layers.Dense(3)), pipeline_stages=1 + 2),
        "coupled": fails(dense(layers.Dense(3)), optimizer=Coupled(0.1)),
        "XLA": fails_with_xla(),
        "scaled loss": fails(
            dense(layers.Dense(3)), optimizer=keras.optimizers.SGD(global_clipnorm=1.0, loss_scale_factor=8.0)
        ),
        "averages": fails(dense(layers.Dense(3)), callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]),
        "histograms": fails(dense(layers.Dense(3)), callbacks=[keras.callbacks.TensorBoard(FOLDER, histogram_freq=1)]),
        "sums": fails(dense(layers.Dense(3), Counting(name="counting"))),
        "different": fails(dense(layers.Dense(3 + RANK, name="inner"))),
        "mask": fails(dense(layers.Reshape((2, 2)), layers.Dense(3), layers.Masking(), layers.Dense(2)), pipeline_stages=2),
        "micro-batches": fails(dense(layers.Dense(3)), reproducible=4, micro_batches=2),
    }


@check
def other_batches() -> dict[str, list[str]]:
    """The ranks have other data, of which one stage takes the samples and another the labels."""

    def done(method: str) -> list[str]:
        model = tnt.Model(dense(layers.Dense(3)), PIPELINING)
        model.compile("sgd", "mse")
        return raised(lambda: getattr(model, method)(np.full((8, 4), RANK, "f4"), np.ones((8, 1), "f4"), verbose=0))

    return {method: done(method) for method in ("fit", "evaluate")}


run(*sys.argv[1:])
