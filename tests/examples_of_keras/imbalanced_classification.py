"""A class that is rare: counts and rates as metrics, weights of classes, batches larger than the rest of the data."""

from __future__ import annotations

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, numbers


def train(wrap: Wrap) -> Trained:
    x = numbers(0, SAMPLES, 8)
    y = (np.arange(SAMPLES) % 7 == 0).astype("uint8")[:, None]
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="relu"), layers.Dropout(NO_DROPOUT)])
    model.add(layers.Dense(1, activation="sigmoid"))
    model = wrap(model)
    names = ("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives", "Precision", "Recall")
    metrics = [getattr(keras.metrics, name)(name=name) for name in names]
    model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=metrics)
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=2,
        verbose=0,
        validation_data=(x[:9], y[:9]),
        class_weight={0: 1.0 / np.sum(y == 0), 1: 1.0 / np.sum(y == 1)},
    ).history
    return model, history


if __name__ == "__main__":
    as_script(train)
