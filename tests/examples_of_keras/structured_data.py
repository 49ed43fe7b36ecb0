"""A table of numbers, words and classes: layers that are adapted, in the dataset and in the model; named inputs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, classes, numbers


def train(wrap: Wrap) -> Trained:
    table = {
        "age": 40 + 10 * numbers(0, SAMPLES, 1),
        "thal": np.array(["fixed", "normal", "reversible"])[classes(1, 3, SAMPLES, 1)],
        "sex": classes(2, 2, SAMPLES, 1),
    }
    labels = classes(3, 2, SAMPLES)
    data = tf.data.Dataset.from_tensor_slices((table, labels)).shuffle(SAMPLES, seed=2).batch(BATCH)
    normalize, lookup = layers.Normalization(), layers.StringLookup(output_mode="one_hot")
    count = layers.CategoryEncoding(num_tokens=2, output_mode="one_hot")
    normalize.adapt(data.map(lambda x, y: x["age"]))
    lookup.adapt(data.map(lambda x, y: x["thal"]))
    prepared = data.map(lambda x, y: ({**x, "thal": lookup(x["thal"])}, y))  # TensorFlow's strings stay in the dataset
    inputs = {
        "age": keras.Input((1,), name="age"),
        "thal": keras.Input((4,), name="thal"),
        "sex": keras.Input((1,), name="sex", dtype="int32"),
    }
    features = layers.concatenate([normalize(inputs["age"]), inputs["thal"], count(inputs["sex"])])
    x = layers.Dropout(NO_DROPOUT)(layers.Dense(8, activation="relu")(features))
    model = wrap(keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x)))
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(prepared, epochs=2, validation_data=prepared.take(2), verbose=0).history
    return model, {**history, "chances": model.predict(prepared.take(1), verbose=0)}


if __name__ == "__main__":
    as_script(train)
