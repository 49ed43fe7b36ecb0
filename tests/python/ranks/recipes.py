"""Models, optimizers and data of the grid: each small, each smooth enough that rounding stays rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from training import Job, Outcome

SAMPLES = 245  # 4 batches of 61 and one of 1: ranks without a sample; 3 of 64 or 63 and a shorter one


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# ------------------------------------------------------------------------------------------------------- models


def mlp(**dense: Any) -> keras.Model:
    return keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="tanh", **dense), layers.Dense(3)])


def mlp_data(samples: int = SAMPLES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = random(seed).normal(size=(samples, 8)).astype(np.float32)
    return x, np.stack([x[:, 0] * x[:, 1], np.sin(x[:, 2]), x[:, 3:].sum(1)], 1).astype(np.float32)


def cnn() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(6, 3, padding="same", activation="gelu"),
            layers.AveragePooling2D(2),
            layers.Conv2D(8, 3, activation="gelu"),
            layers.Flatten(),
            layers.Dense(5),
        ]
    )


def cnn_data(samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    x = random().normal(size=(samples, 8, 8, 3)).astype(np.float32)
    return x, (x.mean((1, 2, 3)) * 40).astype(np.int32) % 5


def two_inputs() -> keras.Model:
    left, right = keras.Input((4,), name="left"), keras.Input((3, 2), name="right")
    joined = layers.Concatenate()([layers.Dense(6, activation="tanh")(left), layers.Flatten()(right)])
    return keras.Model({"left": left, "right": right}, layers.Dense(2)(joined))


def two_inputs_data(samples: int = SAMPLES) -> tuple[dict[str, np.ndarray], np.ndarray]:
    left = random().normal(size=(samples, 4)).astype(np.float32)
    right = random(1).normal(size=(samples, 3, 2)).astype(np.float32)
    return {"left": left, "right": right}, np.stack([left.sum(1), right.sum((1, 2))], 1).astype(np.float32)


IDS = SAMPLES * 6


def embedding(rows: int = IDS + 10) -> keras.Model:
    """Its gradient is sparse: the rows of a batch's ids only."""
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(rows, 4, embeddings_initializer=keras.initializers.RandomUniform(-1, 1)),
            layers.Flatten(),
            layers.Dense(1, activation="sigmoid"),
        ]
    )


def embedding_data() -> tuple[np.ndarray, np.ndarray]:
    """No id comes twice: Keras' adaptive optimizers square the slices of a sparse gradient before they add up those of one
    row, which no dense gradient can repeat."""
    x = random().permutation(IDS).reshape(SAMPLES, 6).astype(np.int32)
    return x, (x[:, :1] % 2).astype(np.float32)


def mixed_dtypes() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(12, activation="tanh", dtype="float64"),
            layers.Dense(10, activation="tanh", dtype="float32"),
            layers.Dense(3, dtype="float64"),
        ]
    )


MODELS: dict[str, tuple[Callable[[], keras.Model], Callable[[], Any], Any, list[str]]] = {
    "mlp": (mlp, mlp_data, "mse", ["mae"]),
    "cnn": (cnn, cnn_data, keras.losses.SparseCategoricalCrossentropy(from_logits=True), ["accuracy"]),
    "two_inputs": (two_inputs, two_inputs_data, "mse", ["mae"]),
    "embedding": (embedding, embedding_data, "binary_crossentropy", ["accuracy", "AUC"]),
    "mixed_dtypes": (mixed_dtypes, mlp_data, "mse", ["mae"]),
}

OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "sgd": partial(keras.optimizers.SGD, 0.05),
    "momentum": partial(keras.optimizers.SGD, 0.02, momentum=0.9, nesterov=True),
    "adam": partial(keras.optimizers.Adam, 2e-3),
    "adamw": partial(keras.optimizers.AdamW, 2e-3, weight_decay=0.01),
    "rmsprop": partial(keras.optimizers.RMSprop, 1e-3),
}


def batched(arrays: Any, batch_size: int, **how: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size, **how)


def grid_case(name: str, job: Job) -> Outcome:
    """A case of the grid by its name, such as ``cnn-adam-61``."""
    model, optimizer, batch_size = name.split("-")
    make_model, make_data, loss, metrics = MODELS[model]
    data = make_data()
    trained, outcome = job.train(
        make_model(),
        batched(data, int(batch_size)),
        optimizer=OPTIMIZERS[optimizer](),
        loss=loss,
        compiling={"metrics": metrics},
        by_step=True,
    )
    outcome.add("evaluate", trained.evaluate(batched(data, int(batch_size)), verbose=0))
    return outcome
