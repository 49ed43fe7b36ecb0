"""Sequence to sequence by characters: two inputs, states of an encoder for a decoder, models of the layers for inference."""

from __future__ import annotations

import numpy as np
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes

TOKENS, WIDTH = 7, 4


def train(wrap: Wrap) -> Trained:
    rows = np.eye(TOKENS, dtype=np.float32)
    source, target = rows[classes(0, TOKENS, SAMPLES, 5)], rows[classes(1, TOKENS, SAMPLES, 6)]
    encoder_inputs = keras.Input((None, TOKENS))
    _, *states = layers.LSTM(WIDTH, return_state=True)(encoder_inputs)
    decoder_inputs = keras.Input((None, TOKENS))
    outputs, _, _ = layers.LSTM(WIDTH, return_sequences=True, return_state=True)(decoder_inputs, initial_state=states)
    model = wrap(keras.Model([encoder_inputs, decoder_inputs], layers.Dense(TOKENS, activation="softmax")(outputs)))
    model.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
    given = {"x": [source, target[:, :-1]], "y": target[:, 1:]}
    history = model.fit(**given, batch_size=BATCH, epochs=2, validation_split=0.2, verbose=0).history
    encoder = keras.Model(encoder_inputs, states)
    return model, {**history, "states": encoder.predict(source[:3], verbose=0)}


if __name__ == "__main__":
    as_script(train)
