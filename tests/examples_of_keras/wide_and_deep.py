"""A wide and deep network with crossed features: many named inputs, lookups in the model, batches with weights of samples."""

from __future__ import annotations

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, classes, numbers, pixels

VOCABULARY = {"soil": 5, "area": 3}


def train(wrap: Wrap) -> Trained:
    table = {name: classes(i, size, SAMPLES) for i, (name, size) in enumerate(VOCABULARY.items())}
    table |= {name: numbers(i, SAMPLES) for i, name in enumerate(("slope", "height"), 5)}
    data = tf.data.Dataset.from_tensor_slices((table, classes(9, 4, SAMPLES), 0.5 + pixels(3, SAMPLES))).batch(BATCH)
    inputs = {name: keras.Input((), name=name, dtype="int32" if name in VOCABULARY else "float32") for name in table}
    wide, deep = [], []
    for name, column in inputs.items():
        if name in VOCABULARY:
            indices = layers.IntegerLookup(vocabulary=list(range(VOCABULARY[name])), num_oov_indices=0)(column)
            wide.append(layers.CategoryEncoding(num_tokens=VOCABULARY[name])(layers.Reshape((1,))(indices)))
            deep.append(layers.Embedding(VOCABULARY[name], 2)(indices))
        else:
            wide.append(layers.Reshape((1,))(column))
            deep.append(layers.Reshape((1,))(column))
    wide = layers.BatchNormalization(synchronized=True)(layers.concatenate(wide))
    first = cross = layers.concatenate(deep)
    for _ in range(2):
        cross = first * layers.Dense(first.shape[-1])(cross) + cross
    x = layers.Dropout(NO_DROPOUT)(layers.Activation("relu")(layers.Dense(6)(first)))
    cross = layers.BatchNormalization(synchronized=True)(cross)
    outputs = layers.Dense(4, activation="softmax")(layers.concatenate([wide, cross, x]))
    model = wrap(keras.Model(inputs, outputs))
    model.compile(
        optimizer=keras.optimizers.SGD(0.05),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        weighted_metrics=["accuracy"],
    )
    history = model.fit(data, epochs=2, verbose=0).history
    return model, {**history, "test": model.evaluate(data, verbose=0)}


if __name__ == "__main__":
    as_script(train)
