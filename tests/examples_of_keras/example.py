"""What the examples share: seeded data, noise that belongs to the samples, and how one of them runs as a script.

Noise would make every number of ranks another training. So a rank draws the noise of the whole batch, and takes the rows of its
own samples: any number of ranks computes what one device does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt

LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
SAMPLES, BATCH = 29, 12  # the last of three batches has 5 samples: ranks have unequal parts of it
NO_DROPOUT = 0.0

Wrap = Callable[..., Any]
"""`tnt.Model`, or for plain Keras a function that returns its first argument."""
Trained = tuple[Any, dict[str, Any]]


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def pixels(seed: int, *shape: int) -> np.ndarray:
    """Numbers between 0 and 1."""
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def classes(seed: int, count: int, *shape: int) -> np.ndarray:
    """Integers from 0 to count - 1."""
    return np.random.default_rng(seed).integers(0, count, shape).astype(np.int32)


def batched(*arrays: Any) -> tf.data.Dataset:
    """Batches of one array, or of tuples of several."""
    return tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0]).batch(BATCH)


def generator(seed: int) -> Any:
    """What a layer or model keeps to draw noise from."""
    return tf.random.Generator.from_seed(seed) if LEGACY else keras.random.SeedGenerator(seed)


def normal(samples: Any, shape: tuple[int, ...], seeds: Any) -> tf.Tensor:
    """Normal noise of this shape for each of a batch's samples."""
    return _rows(samples, lambda n: seeds.normal([n, *shape]) if LEGACY else keras.random.normal((n, *shape), seed=seeds))


def uniform(samples: Any, shape: tuple[int, ...], seeds: Any) -> tf.Tensor:
    """Uniform noise of this shape for each of a batch's samples."""
    return _rows(samples, lambda n: seeds.uniform([n, *shape]) if LEGACY else keras.random.uniform((n, *shape), seed=seeds))


def _rows(samples: Any, draw: Callable[[int], tf.Tensor]) -> tf.Tensor:
    with tnt.same_noise():
        whole = draw(BATCH)
    return whole[tnt.get_rank() :: tnt.get_size()][: tf.shape(samples)[0]]


def update(optimizer: Any, tape: tf.GradientTape, loss: Any, variables: Any) -> None:
    """One step of an optimizer."""
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


def as_script(train: Callable[[Wrap], Trained]) -> None:
    """Trains on all ranks of the job and prints what came of it."""
    keras.utils.set_random_seed(1)
    _, results = train(tnt.Model)
    for name, value in results.items():
        print(name, np.round(np.asarray(value, np.float64).ravel()[:4], 5))
