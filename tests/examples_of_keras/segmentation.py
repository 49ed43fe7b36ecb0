"""A U-Net that gives every pixel a class: transposed convolutions, upsampling, a loss over pixels, weights of pixels."""

from __future__ import annotations

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

from example import SAMPLES, Trained, Wrap, as_script, batched, classes, pixels


def network() -> keras.Model:
    inputs = keras.Input((16, 16, 3))
    x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(inputs)
    previous = x
    x = layers.SeparableConv2D(8, 3, padding="same")(x)
    x = layers.BatchNormalization(synchronized=True)(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(layers.Activation("relu")(x))
    x = layers.add([x, layers.Conv2D(8, 1, strides=2, padding="same")(previous)])
    previous = x
    x = layers.UpSampling2D(2)(layers.Conv2DTranspose(6, 3, padding="same", activation="relu")(x))
    x = layers.add([x, layers.Conv2D(6, 1, padding="same")(layers.UpSampling2D(2)(previous))])
    x = layers.UpSampling2D(2)(x)
    return keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))


def train(wrap: Wrap) -> Trained:
    images, masks = pixels(0, SAMPLES, 16, 16, 3), classes(1, 3, SAMPLES, 16, 16, 1)
    weights = np.where(masks == 2, 3.0, 1.0).astype(np.float32)
    model = wrap(network())
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3, epsilon=1e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy", keras.metrics.MeanIoU(3, sparse_y_pred=False, name="iou")],
    )
    history = model.fit(batched(images, masks, weights), epochs=2, validation_data=batched(images, masks), verbose=0).history
    return model, {**history, "masks": model.predict(batched(images), verbose=0)}


if __name__ == "__main__":
    as_script(train)
