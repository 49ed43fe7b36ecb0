"""What legacy Keras' models can do beside fit and evaluate: files, copies, XLA, training loops of one's own."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import keras as keras3
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from checks import check, log_messages, raised, run
from tarantella.keras.loops.optimizers import is_distributed

RANK, SIZE = tnt.get_rank(), tnt.get_size()
folder = Path(sys.argv[1])
x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
y = x.sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(10)
messages = log_messages()


def plain() -> Any:
    return keras.Sequential([keras.Input((4,)), layers.Dense(3, name="first"), layers.Dense(1, name="second")])


def compiled(model: Any, optimizer: Any = "sgd", **how: Any) -> Any:
    model.compile(optimizer, "mse", **how)
    return model


def fit(model: Any, **how: Any) -> Any:
    return model.fit(dataset, verbose=0, **how)


def flat(weights: Any) -> list[float]:
    return np.concatenate([np.ravel(w) for w in weights]).tolist()


@check
def front_end() -> list[Any]:
    return [type(tnt.Model(plain())).__name__, isinstance(tnt.Model(plain()), keras.Model), keras.Model.__module__]


@check
def a_model_of_keras_3() -> list[str]:
    return raised(tnt.Model, keras3.Sequential([keras3.layers.Dense(1)]))


@check
def a_sharded_optimizer() -> list[str]:
    return raised(tnt.Model, plain(), shard_optimizer=True)


@check
def not_compiled() -> list[str]:
    return raised(fit, tnt.Model(plain()))


@check
def loading_in_other_threads() -> list[Any]:
    """The arguments that only this Keras takes."""
    model = compiled(tnt.Model(plain()))
    how = {"max_queue_size": 4, "workers": 1, "use_multiprocessing": False}
    fit(model, **how)
    return [len(model.evaluate(dataset, verbose=0, return_dict=True, **how)), len(model.predict(x, verbose=0, **how))]


# ----------------------------------------------------------------------------------------------------------- files


def there(pattern: str) -> list[str]:
    return sorted(file.name for file in Path(folder, "files").glob(pattern))


@check
def saved_and_loaded() -> list[Any]:
    """In each format: which files there are, whether what is loaded is plain and predicts the same, and how it trains on."""
    tnt.barrier()
    Path(folder, "files").mkdir(exist_ok=True)
    model = compiled(tnt.Model(plain()), "adam")
    fit(model)
    found = []
    for name in ("model.keras", "model.h5", "folder"):
        path = str(Path(folder, "files", name))
        model.save(path)
        model.save(path)  # over the old one
        loaded = keras.models.load_model(path)
        # the loaded model predicts all of x at once: a product of another shape may sum in another order
        same = np.allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6, atol=1e-6)
        again = tnt.Model(loaded)
        fit(again)
        found.append([there(name + "*"), type(loaded) is keras.Sequential, bool(same), flat(again.get_weights())])
    fit(model)
    return [*found, flat(model.get_weights()), there(".*")]


@check
def weights_there_and_back() -> list[Any]:
    model = compiled(tnt.Model(plain()))
    fit(model)
    before = flat(model.get_weights())
    found = []
    for name in ("some.weights.h5", "of_tensorflow"):
        path = str(Path(folder, "files", name))
        model.save_weights(path)
        model.set_weights([w + 1 for w in model.get_weights()])
        model.load_weights(path)
        found.append([there(name + "*"), flat(model.get_weights()) == before])
    return [*found, there(".*")]


@check
def written_as_text() -> list[Any]:
    model = compiled(tnt.Model(plain()))
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    return ["tarantella" in model.to_json(), json.loads(model.to_json())["class_name"], len(lines) > 0]


# ---------------------------------------------------------------------------------------------------------- copies


@check
def plain_copies() -> list[list[str]]:
    """Each must refuse to train by itself."""
    model = compiled(tnt.Model(plain()))
    inner = model.model
    path = str(Path(folder, f"copy{RANK}.keras"))
    inner.save(path)
    clone = compiled(keras.models.clone_model(model))
    others = [copy.deepcopy(inner), pickle.loads(pickle.dumps(inner)), keras.models.load_model(path)]
    return [raised(fit, one) for one in (inner, clone, *others)]


@check
def a_plain_model() -> list[str]:
    before = len(messages)
    fit(compiled(plain()))
    return messages[before:]


# ------------------------------------------------------------------------------------------------------------- XLA


@check
def jit_compile() -> list[Any]:
    """XLA stays off, and the log says so: what comes out is the same."""
    before, results = len(messages), []
    for how in ({}, {"jit_compile": True}):
        keras.utils.set_random_seed(1)
        model = compiled(tnt.Model(plain()), **how)
        fit(model)
        results.append(flat(model.get_weights()))
    return [results[0] == results[1], model.jit_compile, messages[before:]]


# ------------------------------------------------------------------------------------------- loops of a user's own


def loop(optimizer: Any, distributed_tape: bool = False, rows: slice = slice(RANK, None, SIZE)) -> list[float]:
    """Three steps on this rank's samples."""
    keras.utils.set_random_seed(1)
    model = plain()
    variables = model.trainable_variables

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - model(x, training=True)))
        if distributed_tape:
            tape = tnt.DistributedGradientTape(tape)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(3):
        step(x[rows], y[rows])
    return flat(model.get_weights())


def makers() -> list[Any]:
    return [
        lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
        lambda: keras.optimizers.legacy.SGD(0.01, momentum=0.9, clipnorm=0.5),
    ]


@check
def loops() -> list[Any]:
    """By the wrapped optimizer, by the tape, and on one device with all samples."""
    return [
        [
            loop(tnt.optimizers.Optimizer(make())),
            loop(make(), distributed_tape=True),
            loop(make(), rows=slice(None)),
        ]
        for make in makers()
    ]


@check
def wrapped_optimizer() -> list[Any]:
    optimizer = keras.optimizers.SGD(0.5)
    wrapped = tnt.optimizers.Optimizer(optimizer)
    variable = tf.Variable([1.0, 2.0])
    wrapped.apply_gradients([(tf.constant([2.0, 4.0]) * RANK, variable)], weight=1.0)
    again = keras.optimizers.SGD.from_config(wrapped.get_config())
    refused = raised(fit, compiled(tnt.Model(plain()), wrapped))
    return [wrapped is optimizer, is_distributed(wrapped), is_distributed(again), variable.numpy().tolist(), refused]


@check
def tensors() -> list[Any]:
    variable = tf.Variable([float(RANK)])
    tnt.broadcast_variables([variable], root=SIZE - 1)
    return [tnt.all_reduce(tf.constant([1.0, RANK])).numpy().tolist(), variable.numpy().tolist()]


run(sys.argv[1])
