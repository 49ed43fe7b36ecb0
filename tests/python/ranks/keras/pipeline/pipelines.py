"""Models that tests of pipelines train, and what they compare of a training."""

from __future__ import annotations

import hashlib
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt

SIZE, RANK = tnt.get_size(), tnt.get_rank()
PIPELINING = tnt.ParallelStrategy.PIPELINING
FOLDER = Path(sys.argv[1])
SAMPLES, BATCH, MICRO_BATCHES = 26, 8, 4  # three samples in the last batch: one micro-batch has none
FEW = {"half": 2, "transformer": 2}
"""Micro-batches of models for which fewer show as much: each is traced."""


def dense(*inner: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *inner, layers.Dense(1, name="last")])


def mlp() -> tuple[Any, Any]:
    """Two inputs, two outputs of which one is early, tensors that skip stages, and regularizers."""
    first, second = keras.Input((6,), name="first"), keras.Input((3,), name="second")
    a = layers.Dense(8, activation="relu", name="a", kernel_regularizer="l2")(first)
    b = layers.Dense(8, activation="relu", name="b")(a)
    early = layers.Dense(2, name="early")(b)
    joined, of_c = layers.Concatenate(name="joined")([b, second]), {"activity_regularizer": "l1", "bias_regularizer": "l2"}
    c = layers.Dense(8, activation="tanh", name="c", **of_c)(joined)
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


@keras.saving.register_keras_serializable("pipelines")
class TiedEmbedding(layers.Layer):  # type: ignore[misc]
    """An embedding that also makes logits of its tokens, and adds a loss there in training."""

    def __init__(self, tokens: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sizes, self.supports_masking = (tokens, width), True

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "tokens": self._sizes[0], "width": self._sizes[1]}

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(shape=self._sizes, initializer="uniform", name="table")

    def call(self, x: Any, reverse: bool = False, training: bool = False) -> Any:
        if not reverse:
            return keras.ops.take(self.table, x, axis=0)
        if training:
            self.add_loss(1e-2 * keras.ops.mean(keras.ops.square(x)))
        return keras.ops.matmul(x, keras.ops.transpose(self.table))

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        return keras.ops.not_equal(x, 0) if "int" in str(x.dtype) else None


def transformer() -> tuple[Any, Any]:
    """Attention under a mask that crosses the cuts, and ends before the output, which the embedding makes, too."""
    tokens = keras.Input((5,), dtype="int32")
    embedding = TiedEmbedding(11, 8)
    x = embedding(tokens)
    for _ in range(2):
        inner = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(2, 4, dropout=0.1)(inner, inner)])
        inner = layers.Dense(16, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(8)(layers.Dropout(0.1)(inner))])
    random = np.random.default_rng(2)
    data = random.integers(0, 11, (SAMPLES, 5)), random.integers(0, 3, SAMPLES)
    return keras.Model(tokens, embedding(layers.GlobalAveragePooling1D()(layers.Dense(8)(x)), reverse=True)), data


def tagger() -> tuple[Any, Any]:
    """A label for each token, with a mask that reaches the loss, and a second output of which labels are ignored, too."""
    tokens = keras.Input((6,), dtype="int32")
    x = layers.Dense(8, activation="relu")(layers.Embedding(11, 8, mask_zero=True)(tokens))
    x = layers.BatchNormalization()(layers.Dense(8)(x))
    first = layers.Dense(3, name="first")(layers.Dropout(0.2)(x))
    random = np.random.default_rng(3)
    x = random.integers(0, 11, (SAMPLES, 6))
    y = {"first": random.integers(0, 3, (SAMPLES, 6)), "second": random.integers(0, 3, (SAMPLES, 6))}
    y["second"][random.random((SAMPLES, 6)) < 0.3] = 2  # which counts for nothing
    second = layers.Dense(3, name="second")(first)
    return keras.Model(tokens, {"first": first, "second": second}), (x, y)


def half() -> tuple[Any, Any]:
    """Layers that compute in float16, with a loss that is scaled too much at first: steps are skipped."""
    stack = [layers.Dense(8, activation="relu", dtype="mixed_float16", kernel_regularizer="l2") for _ in range(3)]
    random = np.random.default_rng(4)
    x, y = random.normal(size=(SAMPLES, 6)).astype("f4"), random.integers(0, 3, SAMPLES)
    return keras.Sequential([keras.Input((6,)), *stack, layers.Dense(3, dtype="float32")]), (x, y)


OPTIMIZERS = {
    "mlp": lambda: keras.optimizers.Adam(0.01),
    "cnn": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.5),
    "half": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), 2.0**20, 2),
    "tagger": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "transformer": lambda: keras.optimizers.SGD(0.05, momentum=0.9, use_ema=True, ema_momentum=0.8),
}


def compile_arguments(name: str) -> dict[str, Any]:
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if name == "mlp":
        return {"loss": {"early": "mse", "late": sparse}, "metrics": {"early": ["mae"], "late": ["accuracy"]}}
    if name == "tagger":
        ignoring = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=2)
        return {"loss": {"first": sparse, "second": ignoring}, "metrics": {"first": ["accuracy"], "second": ["accuracy"]}}
    return {"loss": sparse, "metrics": ["accuracy"]}


def sha(arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def hexed(logs: dict[str, list[float]]) -> dict[str, list[str]]:
    """The numbers with all their bits."""
    return {key: [float(value).hex() for value in values] for key, values in logs.items()}


def of_unknown_length(x: Any, y: Any) -> tf.data.Dataset:
    """Batches of which Keras learns only at the end of the first epoch how many there are."""
    samples = tf.data.Dataset.from_tensor_slices((x, y))
    return samples.filter(lambda *_: True).batch(BATCH)


def fitted(name: str, steps: int = 1, deferred: bool = False, **arguments: Any) -> tuple[Any, Any, dict[str, Any]]:
    """The trained model, its data, and what is compared.

    Args:
        steps: in each execution.
        deferred: whether weights are. Ranks then have other seeds, of which those of rank 0 count.
    """
    keras.utils.set_random_seed(7 + (RANK if deferred else 0))
    with tnt.deferred_weights() if deferred else nullcontext():
        plain, (x, y) = {"mlp": mlp, "cnn": cnn, "half": half, "tagger": tagger, "transformer": transformer}[name]()
    model = tnt.Model(plain, **arguments) if arguments else plain
    model.compile(optimizer=OPTIMIZERS[name](), steps_per_execution=steps, **compile_arguments(name))
    if name == "tagger":
        history = model.fit(of_unknown_length(x, y), epochs=2, verbose=0, validation_data=(x[:5], {n: y[n][:5] for n in y}))
    else:
        history = model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, validation_split=0.25)
    found = {
        "history": hexed(history.history),
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
    shards = FEW.get(name, MICRO_BATCHES)
    arguments = {"parallel_strategy": PIPELINING, "pipeline_stages": stages, "reproducible": shards, **others}
    model, (x, _), found = fitted(name, schedule=schedule, **arguments)
    foreign = [v for v in model.model.trainable_variables if v.value.read_value().shape.num_elements() == 0]
    own = model.model.optimizer.variables
    return {**found, **saved(model, x, f"{name}-{schedule}"), "foreign": len(foreign), "state": len(own)}


def serial(name: str, steps: int = 1) -> dict[str, Any]:
    model, (x, _), found = fitted(name, steps, reproducible=FEW.get(name, MICRO_BATCHES))
    return {**found, **saved(model, x, name), "state": len(model.optimizer.variables)}
