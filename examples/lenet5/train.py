"""LeNet-5 on handwritten digits: the whole way of a script from one device to many ranks.

    tarantella -n 4 -- train.py -e 3

Takes MNIST if its file, ``mnist.npz``, is there already (``--data_dir``), and else draws digits: nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tensorflow as tf

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

Samples = tuple[np.ndarray, np.ndarray]

# of a seven-segment display, as (first row, last row, first column, last column) on 28 x 28 pixels
SEGMENTS = {
    "top": (5, 7, 9, 19),
    "upper left": (5, 14, 8, 10),
    "upper right": (5, 14, 18, 20),
    "middle": (13, 15, 9, 19),
    "lower left": (14, 23, 8, 10),
    "lower right": (14, 23, 18, 20),
    "bottom": (21, 23, 9, 19),
}
LIT = ["abcefg", "cf", "acdeg", "acdfg", "bcdf", "abdfg", "abdefg", "acf", "abcdefg", "abcdfg"]


def drawn_digits(n: int, seed: int) -> Samples:
    """n images, (n, 28, 28, 1) of float32 from 0 to 1, and their digits: strokes that are shifted, faint and noisy."""
    letters = dict(zip("abcdefg", SEGMENTS.values(), strict=True))
    templates = np.zeros((10, 28, 28), np.float32)
    for digit, lit in enumerate(LIT):
        for top, bottom, left, right in (letters[letter] for letter in lit):
            templates[digit, top : bottom + 1, left : right + 1] = 1
    rng = np.random.default_rng(seed)
    digits = rng.integers(0, 10, n)
    rows, columns = rng.integers(-4, 5, (2, n, 1, 1))
    pixels = np.arange(28)
    images = templates[digits[:, None, None], (pixels[:, None] + rows) % 28, (pixels + columns) % 28]
    images *= rng.uniform(0.4, 1.0, (n, 1, 1)).astype(np.float32)
    images += rng.normal(0, 0.1, images.shape).astype(np.float32)
    return images.clip(0, 1)[..., None], digits


def mnist(file: Path) -> tuple[Samples, Samples]:
    """60000 images to train with and 10000 to test with, in the form of `drawn_digits`."""
    with np.load(file) as arrays:
        parts = [(arrays[f"x_{kind}"], arrays[f"y_{kind}"]) for kind in ("train", "test")]
    train, test = [((x[..., None] / 255.0).astype(np.float32), y.astype(np.int64)) for x, y in parts]
    return train, test


def datasets(args: argparse.Namespace) -> list[tf.data.Dataset]:
    """Training, validation and test in batches of the global size: every rank makes the same, `tnt.Model` shares them out."""
    sizes = args.train_size, args.val_size, args.test_size
    file = Path(args.data_dir, "mnist.npz")
    if file.is_file():
        (x, y), (x_test, y_test) = mnist(file)
        split = args.train_size, args.train_size + args.val_size
        samples = [(x[: split[0]], y[: split[0]]), (x[split[0] : split[1]], y[split[0] : split[1]])]
        samples.append((x_test[: args.test_size], y_test[: args.test_size]))
    else:
        samples = [drawn_digits(size, seed) for seed, size in enumerate(sizes)]
    train, *others = [tf.data.Dataset.from_tensor_slices(part) for part in samples]
    return [data.batch(args.batch_size) for data in (train.shuffle(len(samples[0][0]), seed=args.shuffle_seed), *others)]


def lenet5() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((28, 28, 1)),
            keras.layers.Conv2D(6, 5, padding="same", activation="tanh"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Conv2D(16, 5, activation="tanh"),
            keras.layers.AveragePooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dense(120, activation="tanh"),
            keras.layers.Dense(84, activation="tanh"),
            keras.layers.Dense(10),
        ]
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains LeNet-5.")
    parser.add_argument("-bs", "--batch_size", type=int, default=64, help="of all ranks together")
    parser.add_argument("-e", "--number_epochs", type=int, default=1)
    parser.add_argument("-lr", "--learning_rate", type=float, default=0.01)
    parser.add_argument("-train", "--train_size", type=int, default=48000)
    parser.add_argument("-val", "--val_size", type=int, default=6400)
    parser.add_argument("-test", "--test_size", type=int, default=6400)
    parser.add_argument("--shuffle_seed", type=int, default=42)
    parser.add_argument("--data_dir", default=Path.home() / ".keras" / "datasets", help="where mnist.npz may be")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    keras.utils.set_random_seed(42)
    train, validation, test = datasets(args)

    model = tnt.Model(lenet5())
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=args.learning_rate, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.summary()
    model.fit(train, epochs=args.number_epochs, validation_data=validation, verbose=2)
    loss, accuracy = model.evaluate(test, verbose=0)
    if tnt.is_master_rank():
        print(f"test loss {loss:.4f}, accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
