"""Classes of series by convolutions: shuffled arrays, BatchNormalization, the best model kept in a file and loaded again."""

from __future__ import annotations

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

import tarantella as tnt
from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes, numbers


def train(wrap: Wrap) -> Trained:
    x, y = numbers(0, SAMPLES, 12, 1), classes(1, 2, SAMPLES)
    order = np.random.permutation(SAMPLES)
    x, y = x[order], y[order]
    inputs = hidden = keras.Input((12, 1))
    for _ in range(2):
        hidden = layers.BatchNormalization(synchronized=True)(layers.Conv1D(6, 3, padding="same")(hidden))
        hidden = layers.ReLU()(hidden)
    outputs = layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(hidden))
    model = wrap(keras.Model(inputs, outputs))
    callbacks = [
        keras.callbacks.ModelCheckpoint("best_model.keras", save_best_only=True, monitor="val_loss"),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=20, min_lr=0.0001),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, verbose=0),
    ]
    model.compile(
        optimizer=keras.optimizers.Adam(epsilon=1e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["sparse_categorical_accuracy"],
    )
    given = {"batch_size": BATCH, "epochs": 2, "callbacks": callbacks, "validation_split": 0.2, "verbose": 0}
    history = model.fit(x, y, **given).history
    load = tnt.models.load_model if wrap is tnt.Model else keras.models.load_model
    model = load("best_model.keras")
    return model, {**history, "test": model.evaluate(x, y, verbose=0)}


if __name__ == "__main__":
    as_script(train)
