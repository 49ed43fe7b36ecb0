"""Classification of raw text: a standardisation of one's own, TextVectorization in the dataset, a model from end to end."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, classes

WORDS = ("the", "film", "was", "long", "good", "bad", "and", "loud", "not", "very")


@keras.utils.register_keras_serializable("tests")
def standardized(text: Any) -> Any:
    return tf.strings.regex_replace(tf.strings.lower(text), "<br />", " ")


def train(wrap: Wrap) -> Trained:
    texts = [" ".join(WORDS[i] for i in row).upper() + "<br />" for row in classes(0, len(WORDS), SAMPLES, 9)]
    raw = tf.data.Dataset.from_tensor_slices((texts, classes(1, 2, SAMPLES))).shuffle(64, seed=3).batch(BATCH)
    vectorize = layers.TextVectorization(standardize=standardized, max_tokens=12, output_sequence_length=10)
    vectorize.adapt(raw.map(lambda text, label: text))
    data = raw.map(lambda text, label: (vectorize(tf.expand_dims(text, -1)), label)).cache().prefetch(2)
    inputs = keras.Input((None,), dtype="int64")
    x = layers.Dropout(NO_DROPOUT)(layers.Embedding(12, 6)(inputs))
    x = layers.Conv1D(6, 3, padding="valid", activation="relu", strides=2)(x)
    x = layers.Dense(6, activation="relu")(layers.GlobalMaxPooling1D()(x))
    model = wrap(keras.Model(inputs, layers.Dense(1, activation="sigmoid", name="predictions")(x)))
    model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.SGD(0.1), metrics=["accuracy"])
    history = model.fit(data, validation_data=data.take(1), epochs=2, verbose=0).history
    whole = keras.Model(text := keras.Input((1,), dtype="string"), model(vectorize(text)))
    whole.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
    return model, {**history, "test": wrap(whole).evaluate(raw, verbose=0)}


if __name__ == "__main__":
    as_script(train)
