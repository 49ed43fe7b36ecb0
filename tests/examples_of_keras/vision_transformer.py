"""A vision transformer: patches, a table of positions, attention, two metrics of classes, weights of the best epoch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, classes, pixels

SIZE, PATCH, WIDTH = 12, 4, 8
PATCHES = (SIZE // PATCH) ** 2


class Patches(layers.Layer):
    def call(self, images: Any) -> Any:
        patches = tf.image.extract_patches(images, [1, PATCH, PATCH, 1], [1, PATCH, PATCH, 1], [1, 1, 1, 1], "VALID")
        return tf.reshape(patches, [-1, PATCHES, PATCH * PATCH * 3])


class PatchEncoder(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.projection, self.position = layers.Dense(WIDTH), layers.Embedding(PATCHES, WIDTH)

    def call(self, patches: Any) -> Any:
        return self.projection(patches) + self.position(tf.range(PATCHES))[tf.newaxis]


def network() -> keras.Model:
    inputs = keras.Input((SIZE, SIZE, 3))
    x = PatchEncoder()(Patches()(inputs))
    first = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([layers.MultiHeadAttention(2, WIDTH, dropout=NO_DROPOUT)(first, first), x])
    second = layers.Dense(WIDTH, activation="gelu")(layers.LayerNormalization(epsilon=1e-6)(x))
    x = layers.Add()([layers.Dropout(NO_DROPOUT)(second), x])
    x = layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(x))
    return keras.Model(inputs, layers.Dense(6)(x))


def train(wrap: Wrap) -> Trained:
    x, y = pixels(0, SAMPLES, SIZE, SIZE, 3), classes(1, 6, SAMPLES, 1)
    model = wrap(network())
    model.compile(
        optimizer=keras.optimizers.AdamW(1e-3, weight_decay=1e-4, epsilon=1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[
            keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
            keras.metrics.SparseTopKCategoricalAccuracy(3, name="top-3"),
        ],
    )
    best = keras.callbacks.ModelCheckpoint(
        "best.weights.h5", monitor="val_accuracy", save_best_only=True, save_weights_only=True
    )
    history = model.fit(x, y, batch_size=BATCH, epochs=2, validation_split=0.1, callbacks=[best], verbose=0).history
    model.load_weights("best.weights.h5")
    return model, {**history, "test": model.evaluate(x, y, verbose=0)}


if __name__ == "__main__":
    as_script(train)
