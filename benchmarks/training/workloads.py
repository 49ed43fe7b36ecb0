"""The models whose exposed communication is measured, for Keras 2 and 3 alike, and how long their steps take."""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

GLOBAL_BATCH = 64
SEED = 2026
MODELS = ("deep", "wide", "tall", "cnn", "mlp", "transformer", "resnet50", "bert_small")
BERT_TOKENS = 30522
SKIPPED_STEPS = 3  # of each fit; the next one's end is where the first measured step begins
LEARNING_RATE = 1e-5  # the deep one amplifies rounding


def build(keras: Any, name: str) -> Any:
    """An uncompiled model: ``deep`` is bound by latency (130 small gradients), ``wide`` and ``tall`` by bandwidth (64 MiB);
    ``cnn``, ``mlp`` and ``transformer`` are small models of the usual kinds; ``resnet50`` takes images of 64 x 64, and
    ``bert_small`` (4 layers of 512) classifies texts of 128 tokens.

    The last gradient of ``wide``, a quarter of all bytes, comes when there is nothing left to hide it behind.
    """
    layers = keras.layers
    keras.utils.set_random_seed(SEED)
    if name == "deep":
        hidden = [layers.Dense(256, activation="relu") for _ in range(64)]
        return keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)])
    if name == "wide":
        hidden = [layers.Dense(2048, activation="relu") for _ in range(4)]
        return keras.Sequential([keras.Input((2048,)), *hidden, layers.Dense(10)])
    if name == "tall":
        hidden = [layers.Dense(1024, activation="relu") for _ in range(16)]
        return keras.Sequential([keras.Input((1024,)), *hidden, layers.Dense(10)])
    if name == "cnn":
        return keras.Sequential(
            [
                keras.Input((32, 32, 3)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(256, activation="relu"),
                layers.Dense(10),
            ]
        )
    if name == "mlp":
        hidden = [layers.Dense(512, activation="relu") for _ in range(2)]
        return keras.Sequential([keras.Input((784,)), *hidden, layers.Dense(10)])
    if name == "transformer":
        inputs = keras.Input((64, 256))  # the words come as vectors
        return _transformer(keras, inputs, inputs, blocks=4, heads=4)
    if name == "resnet50":
        return keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)
    if name == "bert_small":
        tokens = keras.Input((128,), dtype="int32")
        return _transformer(keras, tokens, layers.Embedding(BERT_TOKENS, 512)(tokens), blocks=4, heads=8)
    raise ValueError(f"no model {name!r}: one of {', '.join(MODELS)}")


def _transformer(keras: Any, inputs: Any, x: Any, blocks: int, heads: int) -> Any:
    """An encoder of x, with a classification of the mean over all words."""
    layers = keras.layers
    width = x.shape[-1]
    for _ in range(blocks):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(x, x)]))
        hidden = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, hidden]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def compiled(keras: Any, model: Any, jit: bool) -> Any:
    """The model, compiled for integer labels."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.SGD(LEARNING_RATE), loss=loss, jit_compile=jit)
    return model


def samples(model: Any, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels, the same on every rank."""
    random = np.random.default_rng(SEED)
    shape = (count, *model.input_shape[1:])
    is_text = "int" in str(model.inputs[0].dtype)
    x = random.integers(0, BERT_TOKENS, shape) if is_text else random.standard_normal(shape, dtype=np.float32)
    return x, random.integers(0, 10, count)


def check_steps(parser: argparse.ArgumentParser, steps: int) -> None:
    """Exits if none of so many steps would be measured."""
    if steps <= SKIPPED_STEPS + 1:
        parser.error(f"--steps {steps}: the first {SKIPPED_STEPS + 1} of a block are not measured; ask for more")


def step_timer(keras: Any) -> Any:
    """A callback with the ``seconds`` from the end of a step to the end of the next, without the first few of each fit."""

    class StepTimer(keras.callbacks.Callback):  # type: ignore[misc]
        tnt_decides_alike = True  # the ranks need not agree after each batch that it has changed nothing

        def __init__(self) -> None:
            super().__init__()
            self.seconds: list[float] = []
            self._ends: list[float] = []

        def on_train_begin(self, logs: Any = None) -> None:
            self._ends = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._ends.append(time.perf_counter())

        def on_train_end(self, logs: Any = None) -> None:
            self.seconds += np.diff(self._ends[SKIPPED_STEPS:]).tolist()

    return StepTimer()


def resident_mib() -> float:
    """The resident set of this process, with what it shares with other ranks."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def peak_mib() -> float:
    """The most that was resident of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def median_ms(seconds: list[float]) -> float:
    """The median, in milliseconds."""
    return statistics.median(seconds) * 1e3
