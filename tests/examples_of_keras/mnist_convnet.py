"""A small convolutional network for digits: a Sequential, one-hot labels, a part of the arrays for validation."""

from __future__ import annotations

from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, classes, pixels


def train(wrap: Wrap) -> Trained:
    x, y = pixels(0, SAMPLES, 12, 12, 1), keras.utils.to_categorical(classes(1, 10, SAMPLES), 10)
    model = wrap(
        keras.Sequential(
            [
                keras.Input((12, 12, 1)),
                layers.Conv2D(4, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Conv2D(6, 3, activation="relu"),
                layers.Flatten(),
                layers.Dropout(NO_DROPOUT),
                layers.Dense(10, activation="softmax"),
            ]
        )
    )
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    history = model.fit(x, y, batch_size=BATCH, epochs=2, validation_split=0.2, verbose=0).history
    return model, {**history, "test": model.evaluate(x, y, batch_size=BATCH, verbose=0)}


if __name__ == "__main__":
    as_script(train)
