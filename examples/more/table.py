"""Tabular data with an embedding of a million rows: ranks exchange the rows that a batch uses, not the table.

    tarantella -n 2 -- table.py --rows 1000000 --epochs 3

Customers buy articles; the model learns who buys what from two columns of numbers of customers and articles, and a price.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

ARTICLES = 100


def purchases(n: int, rows: int, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns, and whether it was bought. A few customers have most of the lines, as in life."""
    rng = np.random.default_rng(seed)
    customer = (rows * rng.random(n) ** 6).astype(np.int64)
    article, price = rng.integers(0, ARTICLES, n), rng.random((n, 1)).astype(np.float32)
    likes = (customer * 7 + article * 3) % 10 < 5
    return {"customer": customer, "article": article, "price": price}, (likes & (price[:, 0] < 0.8)).astype(np.float32)


def network(rows: int, width: int = 8) -> Any:
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in ("customer", "article")}
    inputs["price"] = keras.Input((1,), name="price")
    vectors = [
        keras.layers.Embedding(count, width, embeddings_initializer="normal", name=f"{name}s")(inputs[name])
        for name, count in (("customer", rows), ("article", ARTICLES))
    ]
    x = keras.layers.Concatenate()([*vectors, keras.layers.Multiply()(vectors), inputs["price"]])
    return keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(keras.layers.Dense(32, activation="gelu")(x)))


def train(wrap: Any, rows: int, epochs: int, samples: int) -> tuple[Any, dict[str, list[float]]]:
    """The model and its losses. wrap: `tnt.Model`, or a function that returns its argument, for plain Keras."""
    model = wrap(network(rows))
    # SGD changes only the rows of a batch; Adam would keep two more numbers for each number of the table
    model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy"])
    data = tf.data.Dataset.from_tensor_slices(purchases(samples, rows, seed=1)).shuffle(samples, seed=2).batch(128)
    return model, model.fit(data, epochs=epochs, verbose=0).history


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains on a table with a large embedding.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="customers")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--samples", type=int, default=20_000)
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    _, history = train(tnt.Model, args.rows, args.epochs, args.samples)
    if tnt.is_master_rank():
        print(*(f"{name}: {', '.join(f'{value:.4f}' for value in values)}" for name, values in history.items()), sep="\n")


if __name__ == "__main__":
    main()
