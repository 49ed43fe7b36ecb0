"""Trainings as pipelines, and the same on one rank: hashes of the weights, the optimizer's state, losses and metrics."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run
from pipelines import (
    BATCH,
    FOLDER,
    MICRO_BATCHES,
    PIPELINING,
    RANK,
    SIZE,
    compile_arguments,
    dense,
    fitted,
    mlp,
    pipeline,
    serial,
    sha,
)
from tarantella.keras.pipeline import messages
from tarantella.keras.pipeline.crossings import Crossing, Part
from tarantella.keras.reduction import ops
from tarantella.pipeline_schedule import Task, schedule


@check
def trained_mlp() -> Any:
    if SIZE == 1:
        return serial("mlp")
    if SIZE == 2:  # the second cut is between a tanh, which is fused with the sum before it, and a sum after it
        return {"gpipe": pipeline("mlp", "gpipe", ["c"], steps=2), "1f1b": pipeline("mlp", "1f1b", ["added"])}
    return {"1f1b": pipeline("mlp", "1f1b", ["b", "c", "late"])}


@check
def trained_cnn() -> Any:
    """On four ranks, two replicas share the state of the optimizer, which clips by the norm of all gradients."""
    shared = {"parallel_strategy": tnt.ParallelStrategy.ALL, "shard_optimizer": True} if SIZE == 4 else {}
    return serial("cnn") if SIZE == 1 else {"1f1b": pipeline("cnn", "1f1b", 2, **shared)}


@check
def trained_transformer() -> Any:
    return serial("transformer") if SIZE == 1 else {"interleaved": pipeline("transformer", "interleaved", 4, steps=2)}


@check
def trained_tagger() -> Any:
    steps = 3  # in an execution: Keras then counts no step at the end of an epoch of unknown length
    if SIZE == 1:
        return serial("tagger", steps)
    replicas = {"parallel_strategy": tnt.ParallelStrategy.ALL}
    return {"1f1b": pipeline("tagger", "1f1b", 2, steps=steps, deferred=SIZE == 4, **replicas)}


@check
def trained_half() -> Any:
    return serial("half") if SIZE == 1 else {"1f1b": pipeline("half", "1f1b", 2)}


@check
def trained_in_float64() -> Any:
    """With losses that layers and regularizers of the first stage add."""
    keras.backend.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        keras.utils.set_random_seed(7)
        first = [layers.Dense(5, "tanh"), layers.ActivityRegularization(l2=0.01), layers.Dense(4, kernel_regularizer="l2")]
        plain = keras.Sequential([keras.Input((4,)), *first, layers.Dense(1)])
        model = plain if SIZE == 1 else tnt.Model(plain, PIPELINING, pipeline_stages=2, micro_batches=4)
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        x = np.random.default_rng(0).normal(size=(16, 4))
        history = model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=3, shuffle=False, verbose=0)
        return {**history.history, "predicted": np.ravel(model.predict(x, verbose=0)).tolist()}
    finally:
        keras.backend.set_floatx("float32")
        keras.config.set_dtype_policy("float32")


def built_deferred(deferred: bool = True) -> Any:
    keras.utils.set_random_seed(3)
    with tnt.deferred_weights() if deferred else nullcontext():
        own = layers.Dense(3, kernel_initializer=lambda shape, dtype: tf.ones(shape, dtype), name="own")
        return dense(layers.Dense(5), layers.BatchNormalization(), own)


def sizes(model: Any) -> list[int]:
    return [int(tf.size(v.value.read_value())) for v in model.weights]


@check
def deferred_weights() -> dict[str, Any]:
    """The first values are those of a model that was built as ever, in pipelines and without, also before it is trained."""
    if SIZE != 2:
        return {}
    expected = built_deferred(deferred=False)
    built, whole, staged, loaded = (built_deferred() for _ in range(4))
    of_all = tnt.Model(whole).get_weights()
    of_stages = tnt.Model(staged, PIPELINING).get_weights()
    expected.save_weights(FOLDER / f"{RANK}.weights.h5")
    model = tnt.Model(loaded, PIPELINING)
    model.load_weights(FOLDER / f"{RANK}.weights.h5")
    return {
        "expected": sha(expected.get_weights()),
        "found": [sha(of_all), sha(of_stages), sha(model.get_weights())],
        "sizes": [sizes(built), sizes(staged), sizes(loaded)],
    }


@check
def weights_of_plain_keras() -> list[float]:
    """The numbers of the MLP: without reproducible=V, three micro-batches are no power of two."""
    arguments = {} if SIZE == 1 else {"parallel_strategy": PIPELINING, "micro_batches": 3}
    model, _, _ = fitted("mlp", **arguments)
    return [float(number) for array in model.get_weights() for number in np.ravel(array)]


class Scaled(keras.Model):  # type: ignore[misc]
    """Prepares its data in methods of its own, as the models of packages do."""

    def fit(self, x: Any, y: Any = None, **options: Any) -> Any:
        return super().fit(x / 255, y, **options)

    def predict(self, x: Any, **options: Any) -> Any:
        return 2 * super().predict(x / 255, **options)

    def predict_on_batch(self, x: Any) -> Any:
        return super().predict_on_batch(x / 255)


@check
def methods_of_the_class() -> list[float]:
    """They get the arguments, and the pipeline what they hand to Keras."""
    keras.utils.set_random_seed(7)
    inputs = keras.Input((4,))
    plain = Scaled(inputs, layers.Dense(1)(layers.Dense(6, activation="tanh", name="a")(inputs)))
    model = plain if SIZE == 1 else tnt.Model(plain, PIPELINING, micro_batches=2)
    model.compile(keras.optimizers.SGD(0.3), "mse")
    x = np.random.default_rng(5).integers(0, 256, (12, 4)).astype("f4")
    y = x.mean(axis=1, keepdims=True) / 255
    losses = model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*losses, *map(float, [*np.ravel(model.predict(x, batch_size=4, verbose=0)), *np.ravel(model.predict_on_batch(x))])]


@check
def goes_on_from_a_file() -> Any:
    """The trained MLP is loaded into another model and trained on: the optimizer's state goes with it."""
    keras.utils.set_random_seed(7)
    arguments = {} if SIZE == 1 else {"parallel_strategy": PIPELINING, "pipeline_stages": ["c"]}
    loaded = keras.models.load_model(FOLDER / f"{SIZE}-mlp{'-gpipe' if SIZE > 1 else ''}.keras")
    again = tnt.Model(loaded, reproducible=MICRO_BATCHES, **arguments)
    x, y = mlp()[1]
    again.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    return sha(again.get_weights())


@check
def single_batches() -> Any:
    """Steps on batches of the caller's, the last one short."""
    keras.utils.set_random_seed(7)
    plain, (x, y) = mlp()
    arguments = {} if SIZE == 1 else {"parallel_strategy": PIPELINING, "pipeline_stages": ["c"]}
    model = tnt.Model(plain, reproducible=MICRO_BATCHES, **arguments)
    model.compile(optimizer="sgd", **compile_arguments("mlp"))

    def rows(data: Any, begin: int, end: int) -> Any:
        return {name: array[begin:end] for name, array in data.items()}

    found: list[Any] = []
    for begin, end in ((0, 8), (8, 16), (16, 19)):
        found.append(model.train_on_batch(rows(x, begin, end), rows(y, begin, end)))
    found.append(model.test_on_batch(rows(x, 0, 6), rows(y, 0, 6)))
    predicted = model.predict_on_batch(rows(x, 0, 7))
    sizes = [len(predicted[name]) for name in ("early", "late")]
    difference = max(float(np.abs(predicted[n] - model.predict(rows(x, 0, 7), verbose=0)[n]).max()) for n in predicted)
    numbers = [[float(number).hex() for number in keras.tree.flatten(logs)] for logs in found]
    return {"logs": numbers, "weights": sha(model.get_weights()), "sizes": sizes, "alike": difference < 1e-5}


@check
def unexpected_messages() -> dict[str, list[str]]:
    """Rank 0 sends two micro-batches in another order than rank 1 expects, and then the right one in another step."""
    if SIZE != 2:
        return {}
    crossing = Crossing("layer", 0, 0, (1,), (Part(tf.float32, (3,)),))
    cut, made = SimpleNamespace(crossings=[crossing]), schedule("gpipe", 2, 2, 2)
    mail = messages.Mail(cut, made, RANK, lambda micro_batch: (tf.constant(2), 2))
    first, second = (messages.Message(Task(0, m, True), 0, 0, 1) for m in range(2))
    found = {}
    if RANK == 0:
        for message in (second, first):
            mail.send(message, tf.ones([2, 3]))
    else:
        mail.expect([first, second])
        found = {"order": taken(mail, first), "as well": taken(mail, second)}
        mail.wait_for_sends()
    mail = messages.Mail(cut, made, RANK, lambda micro_batch: (tf.constant(2), 2))
    if RANK == 0:
        mail.send(first, tf.ones([2, 3]))
        mail.wait_for_sends()
        return found
    mail.expect([first])
    return {**found, "step": taken(mail, first)}


def taken(mail: messages.Mail, message: messages.Message) -> list[str]:
    with ops.translated_errors():
        return raised(lambda: mail.take(message))


@check
def by_split_layers() -> Any:
    """SplitLayers say where; the predecessor's name of the number of micro-batches; the table of stages."""
    if SIZE != 2:
        return None
    model = dense(layers.Dense(3, name="before"), tnt.keras.layers.SplitLayer(name="split"), layers.Dense(2, name="after"))
    made, lines = tnt.Model(model, tnt.ParallelStrategy.ALL, 3), []
    made.compile("sgd", "mse")
    made.fit(np.ones((8, 4), "f4"), np.ones((8, 1), "f4"), batch_size=4, verbose=0)
    made.summary(print_fn=lambda text, line_break=False: lines.append(text))
    made.save(FOLDER / "split.keras")
    kinds = [type(layer).__name__ for layer in keras.models.load_model(FOLDER / "split.keras").layers]
    return {"lines": lines[-1].splitlines() if lines else [], "kinds": kinds}


run(*sys.argv[1:])
