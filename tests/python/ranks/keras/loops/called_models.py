"""Models that training loops call: those whose outputs depend on other samples of a rank's batch are told of, once."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
import tarantella.horovod.tensorflow as hvd
from checks import check, log_messages, run

RANK = tnt.get_rank()
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
random = np.random.default_rng(RANK)
numbers = random.normal(size=(6, 4)).astype(np.float32)
words = np.array(["a", "b c", "a b c a", "c", "b b", "a c b a b c"])
messages = log_messages()
hvd.init()


class Centred(layers.Layer):
    def call(self, x: Any) -> Any:
        return x - tf.reduce_mean(x, 0)


class Branches(keras.Model):
    """Legacy Keras rewrites a `call` in a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = layers.Dense(4), layers.Dropout(0.5, seed=3), layers.Dense(1)

    def call(self, x: Any, training: Any = None) -> Any:
        if LEGACY and tf.reduce_sum(x) > 1e9:
            x = 2 * x
        return self.last(self.drop(self.first(x), training=training))


def centred() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), Centred(name="centred"), layers.Dense(1)])


def text() -> Any:
    vector = layers.TextVectorization(vocabulary=["a", "b", "c"])
    embedding, mean = layers.Embedding(8, 4), layers.GlobalAveragePooling1D()
    return keras.Sequential([keras.Input((), dtype="string"), vector, embedding, mean, layers.Dense(1)])


def recurrent() -> Any:
    model = [keras.Input((4,)), layers.Reshape((4, 1)), layers.LSTM(3, dropout=0.3), layers.LayerNormalization()]
    return keras.Sequential([*model, layers.Dense(1)])


def normalised() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.BatchNormalization(name="bn"), layers.Dense(1)])


def train(model: Any, x: Any, how: str, graph: bool) -> list[str]:
    """Three steps. Returns what was logged meanwhile."""
    before = len(messages)
    variables = model.trainable_variables
    optimizer = keras.optimizers.SGD(0.1)
    if how == "optimizer":
        optimizer = tnt.optimizers.Optimizer(optimizer)

    def step(x: Any) -> None:
        tape = tnt.DistributedGradientTape(tf.GradientTape()) if how == "tape" else tf.GradientTape()
        with tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - 1.0))
        if how == "horovod":
            tape = hvd.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    step = tf.function(step, reduce_retracing=True) if graph else step
    for begin in (0, 1, 2):
        step(tf.constant(x[begin : begin + 4]))
    return messages[before:]


@check
def told() -> dict[str, list[str]]:
    found = {}
    for graph in (False, True):
        for how in ("tape", "optimizer", "horovod"):
            found[f"centred {how} {graph}"] = train(centred(), numbers, how, graph)
        found[f"text tape {graph}"] = train(text(), words, "tape", graph)
        found[f"tnt.Model {graph}"] = train(tnt.Model(centred()), numbers, "tape", graph)
    return found


@check
def not_told() -> list[list[str]]:
    """Nothing is said of models that do not couple samples, of plain loops, and of what is declared."""
    found = []
    for graph in (False, True):
        built = Branches()
        built(numbers)
        for model in (built, recurrent()):
            found.append(train(model, numbers, "tape", graph))
        declared = centred()
        declared.call = tnt.independent_samples(lambda x, training=None, call=declared.call, **_: call(x))
        found.append(train(declared, numbers, "tape", graph))
    return found


@check
def batch_normalization() -> list[list[str]]:
    return [train(normalised(), numbers, "tape", graph) for graph in (False, True)]


@check
def no_trace() -> list[bool]:
    """A loop goes on as if nothing had been tried."""
    found = []
    for graph in (False, True):
        weights = []
        for is_declared in (False, True):
            tf.random.set_seed(1)
            model = Branches()
            model(numbers)
            model.set_weights([np.full_like(w, 0.5) for w in model.get_weights()])
            if is_declared:
                tnt.independent_samples(type(model).call)
            train(model, numbers, "tape", graph)
            weights.append(np.concatenate([np.ravel(w) for w in model.get_weights()]))
            if is_declared:
                del Branches.call._tnt_independent_samples
        found.append(bool(np.array_equal(*weights)) and bool(np.ptp(weights[0]) > 0))
    return found


run(*sys.argv[1:])
