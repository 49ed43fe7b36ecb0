"""A model in stages, each on a rank: a small language model that learns to write like Python's own documentation.

    tarantella -n 2 -- pipeline.py --epochs 3

The ranks hold different layers, with their part of the optimizer's state and of the activations. The first and the last stage
share the embedding of the characters. Needs Keras 3.
"""

from __future__ import annotations

import argparse
import inspect
import pydoc
from typing import Any

import keras
import numpy as np
from keras import layers, ops

import tarantella as tnt

LENGTH, BATCH, PADDING = 64, 32, 0


@keras.saving.register_keras_serializable("pipeline")
class Characters(layers.Layer):
    """The vectors of characters; in reverse, how well each character fits a vector."""

    def __init__(self, number: int, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.number, self.width, self.supports_masking = number, width, True

    def build(self, input_shape: Any) -> None:
        self.table = self.add_weight(shape=(self.number, self.width), initializer="glorot_uniform", name="table")

    def call(self, x: Any, reverse: bool = False) -> Any:
        return ops.matmul(x, ops.transpose(self.table)) if reverse else ops.take(self.table, x, axis=0)

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        return ops.not_equal(x, PADDING) if mask is None else mask

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "number": self.number, "width": self.width}


def texts(samples: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Lines as numbers of characters, the same lines one character on, and how many numbers there are."""
    lines = [line.strip() for module in (argparse, inspect, pydoc) for line in inspect.getsource(module).splitlines()]
    lines = [line for line in lines if len(line) > 10 and line.isascii()][:samples]
    numbers = np.full((len(lines), LENGTH + 1), PADDING, np.int32)
    for row, line in zip(numbers, lines, strict=True):
        row[: len(line)] = np.frombuffer(line.encode()[: LENGTH + 1], np.uint8)
    return numbers[:, :-1], numbers[:, 1:], 128


def network(characters: int, blocks: int, width: int) -> Any:
    """A decoder: attention to what came before, and a dense network, several times."""
    tokens = keras.Input((LENGTH,), dtype="int32")
    embedding = Characters(characters, width, name="characters")
    x = embedding(tokens)
    for _ in range(blocks):
        inner = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, width // 4)(inner, inner, use_causal_mask=True)])
        inner = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(width)(inner)])
    return keras.Model(tokens, embedding(layers.LayerNormalization()(x), reverse=True))


def pipeline(model: Any) -> Any:
    """The model in as many stages as there are ranks. Where it is cut is found from the times of its layers."""
    return tnt.Model(model, tnt.ParallelStrategy.PIPELINING, micro_batches=8)


def train(
    wrap: Any, epochs: int, samples: int, blocks: int, width: int, callbacks: Any = ()
) -> tuple[Any, dict[str, list[float]]]:
    """The model and its losses. wrap: `pipeline`, or a function that returns its argument, for plain Keras."""
    x, y, characters = texts(samples)
    model = wrap(network(characters, blocks, width))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)  # without the padding, which is masked
    model.compile(keras.optimizers.Adam(3e-3), loss, weighted_metrics=["accuracy"])
    return model, model.fit(x, y, batch_size=BATCH, epochs=epochs, callbacks=list(callbacks), verbose=0).history


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a language model in stages.")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--checkpoints", help="a folder, from which the training goes on when it is started again")
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    callbacks = [tnt.callbacks.Checkpoint(args.checkpoints)] if args.checkpoints else []
    model, history = train(pipeline, args.epochs, args.samples, args.blocks, args.width, callbacks)
    model.summary()
    if tnt.is_master_rank():
        print(*(f"{name}: {', '.join(f'{value:.4f}' for value in values)}" for name, values in history.items()), sep="\n")


if __name__ == "__main__":
    main()
