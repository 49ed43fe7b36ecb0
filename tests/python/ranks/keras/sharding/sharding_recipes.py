"""Small models, their data, and hashes of all that a training changes, for the scripts about `shard_optimizer=True`."""

from __future__ import annotations

import hashlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

random = np.random.default_rng(0)
BATCH = 16
ids = random.integers(0, 40, size=(61, 6)).astype(np.int32)  # the last batch is shorter
inputs = random.normal(size=(61, 6)).astype(np.float32)
targets = random.normal(size=(61, 3)).astype(np.float32)
STEPS = 4  # of an epoch


def with_table() -> Any:
    """A table, whose gradient is sparse, matrices and vectors; it takes `ids`."""
    keras.utils.set_random_seed(7)
    return keras.Sequential(
        [
            keras.Input((6,), dtype="int32"),
            layers.Embedding(3000, 8, name="table"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(16, activation="tanh", kernel_constraint="unit_norm", name="hidden"),
            layers.Dense(3, name="last"),
        ]
    )


def tiny() -> Any:
    """Two matrices and two vectors; it takes `inputs`."""
    keras.utils.set_random_seed(7)
    return keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])


def data(x: Any = ids) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, targets)).batch(BATCH)


def state(optimizer: Any) -> list[Any]:
    """All that the optimizer holds, in the order of one device. Collective."""
    return [np.asarray(v) for v in optimizer.variables]


def hashed(arrays: list[Any]) -> str:
    """Of types, shapes and every bit."""
    text = hashlib.sha256()
    for array in arrays:
        text.update(f"{array.shape} {array.dtype}".encode() + np.ascontiguousarray(array).tobytes())
    return text.hexdigest()[:16]


def digest(model: Any, history: Any = None) -> str:
    """Of weights, optimizer state and logs."""
    logs = "" if history is None else repr(history.history)
    return hashed([*model.get_weights(), *state(model.optimizer), np.frombuffer(logs.encode(), np.uint8)])
