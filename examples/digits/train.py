"""Handwritten digits: a small CNN, trained on one device or on many ranks, with the same result.

    python train.py --serial            plain Keras
    tarantella -n 4 -- train.py         the same on four ranks

The two lines marked below are all that tells this script from one for a single device.
"""

from __future__ import annotations

import argparse
import json
import time

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits


def digits() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """1797 images of 8x8 pixels, split once and for all into 1437 to train on and 360 to test with."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8, 1) / 16.0).astype("float32")
    order = np.random.default_rng(seed=1).permutation(len(images))
    train, test = order[360:], order[:360]
    return (images[train], labels[train]), (images[test], labels[test])


def cnn() -> keras.Model:
    """Smooth on purpose. At the corner of a relu, or where max-pooling finds two equal pixels, the last bit of a sum decides
    which way a gradient takes, so two correct runs part; here they stay together to a few millionths."""
    return keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="gelu"),
            layers.Conv2D(64, 3, padding="same", activation="gelu"),
            layers.AveragePooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="gelu"),
            layers.Dense(10),
        ]
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a CNN on scikit-learn's digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="of all ranks together")
    parser.add_argument("--serial", action="store_true", help="plain Keras, without tarantella")
    parser.add_argument("--json", metavar="FILE", help="write loss, accuracy and the like to FILE")
    parser.add_argument("--weights", metavar="FILE.npz", help="write the trained weights to FILE.npz")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    train, test = digits()
    keras.utils.set_random_seed(1)

    model = cnn()
    if not args.serial:
        import tarantella as tnt  # this line

        model = tnt.Model(model)  # and this one

    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=0.03, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start = time.perf_counter()
    history = model.fit(*train, batch_size=args.batch_size, epochs=args.epochs)
    seconds = time.perf_counter() - start
    _, accuracy = model.evaluate(*test, batch_size=args.batch_size, verbose=0)

    if args.serial or tnt.is_master_rank():
        print(f"test accuracy {accuracy:.4f}")
        results = {"loss": history.history["loss"][-1], "accuracy": accuracy, "seconds": seconds}
        if not args.serial:
            results |= model.stats()
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file)
        if args.weights:
            np.savez(args.weights, *model.get_weights())


if __name__ == "__main__":
    main()
