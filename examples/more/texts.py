"""Text classification, from strings: is a line Python or English? Its data are the documentation and code of Python itself.

tarantella -n 2 -- texts.py --epochs 5
"""

from __future__ import annotations

import argparse
import inspect
import pydoc
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

WORDS, LENGTH = 2000, 16


def lines(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Lines of Python's own modules, in a random order, and 1 where a line is English."""
    found: dict[str, int] = {}
    for module in (argparse, inspect, pydoc):
        source = inspect.getsource(module)
        documentation = "\n".join(text for text in map(inspect.getdoc, vars(module).values()) if isinstance(text, str))
        for text, label in ((documentation, 1), (source, 0)):
            found |= {line: label for line in map(str.strip, text.splitlines()) if len(line.split()) > 3 and line not in found}
    order = np.random.default_rng(1).permutation(len(found))[:n]
    return np.array(list(found), dtype=object)[order], np.array(list(found.values()), np.float32)[order]


def network(texts: np.ndarray) -> Any:
    """Numbers of words, their vectors, and a convolution. Every rank learns the same words of the same texts."""
    words = keras.layers.TextVectorization(WORDS, output_sequence_length=LENGTH)
    words.adapt(texts)
    layers = [
        keras.layers.Embedding(WORDS, 16),
        keras.layers.Conv1D(16, 3, activation="gelu"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    return words, keras.Sequential([keras.layers.Input((LENGTH,), dtype="int64"), *layers])


def train(wrap: Any, epochs: int, samples: int) -> tuple[Any, dict[str, list[float]]]:
    """The model and its losses. wrap: `tnt.Model`, or a function that returns its argument, for plain Keras."""
    texts, labels = lines(samples)
    part = len(texts) * 4 // 5
    words, classifier = network(texts[:part])
    data = tf.data.Dataset.from_tensor_slices((texts.astype(str), labels))
    # the dataset makes numbers of the words: strings are no input of a GPU
    training, validation = (
        some.batch(32).map(lambda text, label: (words(text), label)) for some in (data.take(part), data.skip(part))
    )
    model = wrap(classifier)
    model.compile(keras.optimizers.SGD(0.5, momentum=0.9), "binary_crossentropy", metrics=["accuracy"])
    return model, model.fit(training, epochs=epochs, validation_data=validation, verbose=0).history


def main() -> None:
    parser = argparse.ArgumentParser(description="Classifies texts.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=4000)
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    _, history = train(tnt.Model, args.epochs, args.samples)
    if tnt.is_master_rank():
        print(*(f"{name}: {', '.join(f'{value:.4f}' for value in values)}" for name, values in history.items()), sep="\n")


if __name__ == "__main__":
    main()
