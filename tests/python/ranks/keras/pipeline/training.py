"""Trainings as pipelines, and the same on one rank: hashes of the weights, the optimizer's state, losses and metrics."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from tensorflow.python.framework import config

import tarantella as tnt
from checks import check, raised, run
from tarantella.keras import adapter
from tarantella.keras.pipeline import fusion, messages
from tarantella.keras.pipeline.cut import Crossing, Part
from tarantella.keras.pipeline.schedule import Task, schedule
from tarantella.keras.reduction import ops

SIZE, RANK = tnt.get_size(), tnt.get_rank()
PIPELINING = tnt.ParallelStrategy.PIPELINING
FOLDER = Path(sys.argv[1])
SAMPLES, BATCH, MICRO_BATCHES = 26, 8, 4  # three samples in the last batch: one micro-batch has none


def mlp() -> tuple[Any, Any]:
    """Two inputs, two outputs of which one is early, and tensors that skip stages."""
    first, second = keras.Input((6,), name="first"), keras.Input((3,), name="second")
    a = layers.Dense(8, activation="relu", name="a")(first)
    b = layers.Dense(8, activation="relu", name="b")(a)
    early = layers.Dense(2, name="early")(b)
    c = layers.Dense(8, activation="tanh", name="c")(layers.Concatenate(name="joined")([b, second]))
    d = layers.Add(name="added")([a, c])
    late = layers.Dense(3, name="late")(layers.Concatenate(name="all")([d, a]))
    random = np.random.default_rng(0)
    x = {"first": random.normal(size=(SAMPLES, 6)).astype("f4"), "second": random.normal(size=(SAMPLES, 3)).astype("f4")}
    y = {"early": random.normal(size=(SAMPLES, 2)).astype("f4"), "late": random.integers(0, 3, SAMPLES)}
    return keras.Model({"first": first, "second": second}, {"early": early, "late": late}), (x, y)


def cnn() -> tuple[Any, Any]:
    """BatchNormalization and dropout."""
    stack = [layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(), layers.Dropout(0.3), layers.Conv2D(4, 3)]
    stack += [layers.BatchNormalization(), layers.Flatten(), layers.Dropout(0.2), layers.Dense(8), layers.Dense(3)]
    random = np.random.default_rng(1)
    x, y = random.normal(size=(SAMPLES, 7, 7, 2)).astype("f4"), random.integers(0, 3, SAMPLES)
    return keras.Sequential([keras.Input((7, 7, 2)), *stack]), (x, y)


def transformer() -> tuple[Any, Any]:
    """Attention under a mask that crosses the cuts, and ends before the output."""
    tokens = keras.Input((5,), dtype="int32")
    x = layers.Embedding(11, 8, mask_zero=True)(tokens)
    for _ in range(2):
        inner = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4, dropout=0.1)(inner, inner)])
        inner = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(8)(layers.Dropout(0.1)(inner))])
    random = np.random.default_rng(2)
    data = random.integers(0, 11, (SAMPLES, 5)), random.integers(0, 3, SAMPLES)
    return keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(x))), data


OPTIMIZERS = {
    "mlp": lambda: keras.optimizers.Adam(0.01),
    "cnn": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    "transformer": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
}


def compile_arguments(name: str) -> dict[str, Any]:
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "mlp":
        return {"loss": {"early": "mse", "late": sparse}, "metrics": {"early": ["mae"], "late": ["accuracy"]}}
    return {"loss": sparse, "metrics": ["accuracy"]}


def sha(arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def fitted(name: str, **arguments: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The trained model, its data, and what is compared."""
    keras.utils.set_random_seed(7)
    plain, (x, y) = {"mlp": mlp, "cnn": cnn, "transformer": transformer}[name]()
    model = tnt.Model(plain, **arguments) if arguments else plain
    model.compile(optimizer=OPTIMIZERS[name](), **compile_arguments(name))
    history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, validation_split=0.25)
    found = {
        "history": {key: [float(value).hex() for value in values] for key, values in history.history.items()},
        "evaluate": [float(number).hex() for number in model.evaluate(x, y, batch_size=BATCH, verbose=0)],
        "weights": sha(model.get_weights()),
    }
    return model, (x, y), found


def saved(model: Any, x: Any, name: str) -> dict[str, Any]:
    """The file of the model, as plain Keras reads it, and what the model predicts."""
    file = FOLDER / f"{SIZE}-{name}.keras"
    predicted = [np.asarray(p) for p in keras.tree.flatten(model.predict(x, batch_size=BATCH, verbose=0))]
    model.save(file)
    loaded = keras.models.load_model(file)
    others = [np.asarray(p) for p in keras.tree.flatten(loaded.predict(x, verbose=0))]
    difference = max(float(np.abs(one - other).max()) for one, other in zip(predicted, others, strict=True))
    return {
        "optimizer": sha(np.asarray(v) for v in loaded.optimizer.variables),
        "file": sha(loaded.get_weights()),
        "difference": difference,
    }


def pipeline(name: str, schedule: str, stages: Any, **others: Any) -> dict[str, Any]:
    arguments = {"parallel_strategy": PIPELINING, "pipeline_stages": stages, "reproducible": MICRO_BATCHES, **others}
    model, (x, _), found = fitted(name, schedule=schedule, **arguments)
    foreign = [v for v in model.model.trainable_variables if v.value.read_value().shape.num_elements() == 0]
    own = model.model.optimizer.variables
    return {**found, **saved(model, x, f"{name}-{schedule}"), "foreign": len(foreign), "state": len(own)}


def serial(name: str) -> dict[str, Any]:
    model, (x, _), found = fitted(name, reproducible=MICRO_BATCHES)
    return {**found, **saved(model, x, name), "state": len(model.optimizer.variables)}


@check
def trained_mlp() -> Any:
    if SIZE == 1:
        return serial("mlp")
    if SIZE == 2:  # the second cut is between a tanh, which is fused with the sum before it, and a sum after it
        return {"gpipe": pipeline("mlp", "gpipe", ["c"]), "1f1b": pipeline("mlp", "1f1b", ["added"])}
    replicas = pipeline("mlp", "1f1b", ["added"], parallel_strategy=tnt.ParallelStrategy.ALL)
    return {"1f1b": pipeline("mlp", "1f1b", ["b", "c", "late"]), "replicas": replicas}


@check
def trained_cnn() -> Any:
    return serial("cnn") if SIZE == 1 else {"1f1b": pipeline("cnn", "1f1b", 2, parallel_strategy=tnt.ParallelStrategy.ALL)}


@check
def trained_transformer() -> Any:
    return serial("transformer") if SIZE == 1 else {"interleaved": pipeline("transformer", "interleaved", 4)}


@check
def weights_of_plain_keras() -> list[float]:
    """The numbers of the MLP: without reproducible=V, three micro-batches are no power of two."""
    arguments = {} if SIZE == 1 else {"parallel_strategy": PIPELINING, "micro_batches": 3}
    model, _, _ = fitted("mlp", **arguments)
    return [float(number) for array in model.get_weights() for number in np.ravel(array)]


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


# --------------------------------------------------------------------------------------------------- what is refused


class Subclassed(keras.Model):
    def call(self, inputs: Any) -> Any:
        return inputs


def dense(*inner: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *inner, layers.Dense(1, name="last")])


def fails(model: Any, loss: Any = "mse", callbacks: Any = None, optimizer: Any = "sgd", **arguments: Any) -> list[str]:
    compiled = {name: arguments.pop(name) for name in ("jit_compile", "steps_per_execution") if name in arguments}

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
    if SIZE != 2:
        return {}
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
    if SIZE != 2:
        return {}

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


@check
def refused() -> dict[str, list[str]]:
    if SIZE != 2:
        return {}
    shared = layers.Dense(4, name="shared")
    inputs = keras.Input((4,))
    branches = [layers.Dense(2)(inputs), layers.Dense(2)(inputs)]
    parallel = keras.Model(inputs, layers.Dense(1, name="end")(layers.Dense(3, name="joint")(layers.Add(name="sum")(branches))))
    clip = keras.optimizers.SGD(global_clipnorm=1.0, gradient_accumulation_steps=2)
    second = adapter.layer_calls(parallel)[1].operation.name
    return {
        "subclassed": fails(Subclassed()),
        "too few layers": fails(dense()),
        "shared": fails(dense(shared, layers.ReLU(name="between"), shared), pipeline_stages=["between"]),
        "no variables": fails(dense(layers.Dense(3), layers.ReLU(name="relu")), pipeline_stages=["last"], schedule="x"),
        "no data": fails(parallel, pipeline_stages=[second, "sum", "end"], schedule="interleaved"),
        "unknown": fails(dense(layers.Dense(3)), pipeline_stages=["nowhere"]),
        "regularizer": fails(dense(layers.Dense(3, kernel_regularizer="l2"))),
        "clip": fails(dense(layers.Dense(3)), optimizer=clip),
        "callback": fails(dense(layers.Dense(3)), callbacks=[keras.callbacks.ModelCheckpoint(FOLDER / "x.keras")]),
        "hook": fails(dense(layers.Dense(3)), bucket_hook=print),
        "ranks": fails(dense(layers.Dense(3)), pipeline_stages=1 + 2),
        "sharded": fails(dense(layers.Dense(3)), shard_optimizer=True),
        "XLA": fails_with_xla(),
        "several steps": fails(dense(layers.Dense(3)), steps_per_execution=2),
        "added loss": fails(dense(layers.ActivityRegularization(0.1))),
        "scaled loss": fails(dense(layers.Dense(3)), optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())),
        "checkpoint": fails(dense(layers.Dense(3)), callbacks=[tnt.callbacks.Checkpoint(FOLDER / "checkpoints")]),
        "backup": fails(dense(layers.Dense(3)), callbacks=[keras.callbacks.BackupAndRestore(FOLDER / "backup")]),
        "best weights": fails(dense(layers.Dense(3)), callbacks=[keras.callbacks.EarlyStopping(restore_best_weights=True)]),
        "different": fails(dense(layers.Dense(3 + RANK, name="inner"))),
        "micro-batches": fails(dense(layers.Dense(3)), reproducible=4, micro_batches=2),
        "single batch": raised(tnt.Model(dense(layers.Dense(3)), PIPELINING).train_on_batch, np.ones((4, 4)), np.ones((4, 1))),
    }


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
