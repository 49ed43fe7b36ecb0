"""An Xception-like network: augmentation in the dataset, separable convolutions, BatchNormalization, residual blocks."""

from __future__ import annotations

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, batched, classes, pixels


def network() -> keras.Model:
    inputs = keras.Input((16, 16, 3))
    x = layers.Rescaling(1.0 / 255)(inputs)
    x = layers.Conv2D(6, 3, strides=2, padding="same")(x)
    x = layers.Activation("relu")(layers.BatchNormalization(synchronized=True)(x))
    previous = x
    x = layers.SeparableConv2D(8, 3, padding="same")(x)
    x = layers.Activation("relu")(layers.BatchNormalization(synchronized=True)(x))
    x = layers.SeparableConv2D(8, 3, padding="same")(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(layers.BatchNormalization(synchronized=True)(x))
    x = layers.add([x, layers.Conv2D(8, 1, strides=2, padding="same")(previous)])
    x = layers.Dropout(NO_DROPOUT)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(1)(x))


def train(wrap: Wrap) -> Trained:
    x, y = 255 * pixels(0, SAMPLES, 16, 16, 3), classes(1, 2, SAMPLES)
    augmented = batched(x, y).map(lambda images, labels: (tf.image.random_flip_left_right(images, seed=5), labels))
    model = wrap(network())
    model.compile(
        optimizer=keras.optimizers.Adam(3e-4, epsilon=1e-3),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(name="acc")],
    )
    history = model.fit(augmented.prefetch(2), epochs=2, validation_data=batched(x, y), verbose=0).history
    return model, {**history, "scores": model.predict(x[:5], verbose=0)}


if __name__ == "__main__":
    as_script(train)
