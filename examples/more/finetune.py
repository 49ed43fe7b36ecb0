"""Fine-tuning of a network of Keras' applications: a new head on frozen layers first, then all layers at a small rate.

    tarantella -n 2 -- finetune.py --weights base.weights.h5

The network is one for colour images, and the pictures are scikit-learn's handwritten digits. Nothing is downloaded: if there is
no file of weights yet, rank 0 first trains the network on the digits 0 to 4. Fine-tuned, it tells 5 to 9 apart.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tarantella as tnt

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

SIDE, CLASSES, BATCH = 32, 5, 32


def digits(first: int, samples: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Colour images of five digits, and which of the five they show."""
    data = load_digits()
    chosen = np.flatnonzero((data.target >= first) & (data.target < first + CLASSES))[:samples]
    images, labels = data.images[chosen], data.target[chosen]
    small = np.repeat(images[..., None] / 8 - 1, 3, axis=-1)
    return tf.image.resize(small, (SIDE, SIDE)).numpy(), labels - first


def base_network() -> Any:
    """MobileNet without its head: an image in, 256 features out."""
    return keras.applications.MobileNet((SIDE, SIDE, 3), alpha=0.25, include_top=False, weights=None, pooling="avg")


def with_head(base: Any) -> Any:
    inputs = keras.Input((SIDE, SIDE, 3))
    # named, as rank 0 may have made one before, and ranks must have the same names
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="head")(base(inputs)))


def compiled(model: Any, rate: float) -> Any:
    model.compile(
        optimizer=keras.optimizers.SGD(rate, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def pretrain(weights: Path, epochs: int, samples: int | None = None) -> None:
    """Writes the weights of a network that knows the digits 0 to 4, by plain Keras on this rank."""
    base = base_network()
    compiled(with_head(base), 0.05).fit(*digits(0, samples), batch_size=BATCH, epochs=epochs, verbose=0)
    base.save_weights(weights)


def set_trainable(base: Any, trainable: bool) -> None:
    """Freezes the network, or all of it but BatchNormalization.

    A BatchNormalization that is not trainable keeps its averages, so each sample is for itself. Otherwise it normalises by the
    samples at hand, which are fewer on more ranks, and its averages forget what they were trained with. `training=False` in the
    call of the network does not prevent that in Keras 3, whose `fit` overrides it.
    """
    base.trainable = trainable
    for layer in base.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False


def train(wrap: Any, weights: Path, epochs: tuple[int, int], samples: int | None = None) -> tuple[Any, dict[str, list[float]]]:
    """The model, and figures of both phases. wrap: `tnt.Model`, or a function that returns its argument, for plain Keras."""
    x, y = digits(CLASSES, samples)
    split = len(x) * 3 // 4
    base = base_network()
    try:
        base.load_weights(weights)
    except (OSError, ValueError) as error:
        raise SystemExit(f"finetune.py: {weights} is damaged, or has weights of another network: {error}") from error
    model, history = wrap(with_head(base)), {}
    for phase, trainable, rate, count in (("head", False, 0.05, epochs[0]), ("all", True, 0.01, epochs[1])):
        set_trainable(base, trainable)
        compiled(model, rate)  # which layers are trained counts from here on
        data = tf.data.Dataset.from_tensor_slices((x[:split], y[:split])).shuffle(split, seed=2).batch(BATCH)
        fitted = model.fit(data, epochs=count, validation_data=(x[split:], y[split:]), verbose=0)
        history |= {f"{phase} {name}": values for name, values in fitted.history.items()}
    return model, history


def main() -> None:
    parser = argparse.ArgumentParser(description="Fine-tunes a network for images.")
    parser.add_argument("--weights", type=Path, default=Path("base.weights.h5"), help="of the network; made if it is not there")
    parser.add_argument("--epochs", type=int, nargs=2, default=(5, 10), help="with frozen layers, and with all")
    args = parser.parse_args()
    if tnt.is_master_rank() and not args.weights.exists():
        keras.utils.set_random_seed(1)
        pretrain(args.weights, epochs=10)
    tnt.barrier()
    keras.utils.set_random_seed(1)
    _, history = train(tnt.Model, args.weights, args.epochs)
    if tnt.is_master_rank():
        print(*(f"{name}: {values[0]:.4f} to {values[-1]:.4f}" for name, values in history.items()), sep="\n")


if __name__ == "__main__":
    main()
