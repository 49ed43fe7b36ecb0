"""Translation by a transformer: dict inputs, masks of padding that layers pass on, causal attention to another sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import LEGACY, NO_DROPOUT, SAMPLES, Trained, Wrap, as_script, batched, classes

WORDS, LENGTH, WIDTH = 11, 6, 6


class PositionalEmbedding(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokens, self.positions = layers.Embedding(WORDS, WIDTH), layers.Embedding(LENGTH, WIDTH)

    def call(self, inputs: Any) -> Any:
        return self.tokens(inputs) + self.positions(tf.range(tf.shape(inputs)[-1]))

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return tf.not_equal(inputs, 0) if LEGACY else keras.ops.not_equal(inputs, 0)


class Encoder(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.attention, self.dense = layers.MultiHeadAttention(2, WIDTH), layers.Dense(WIDTH, activation="relu")
        self.first, self.second, self.supports_masking = layers.LayerNormalization(), layers.LayerNormalization(), True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        padding = None if mask is None else tf.cast(mask[:, None, :], tf.int32)
        x = self.first(inputs + self.attention(inputs, inputs, inputs, attention_mask=padding))
        return self.second(x + self.dense(x))


class Decoder(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.own, self.other = layers.MultiHeadAttention(2, WIDTH), layers.MultiHeadAttention(2, WIDTH)
        self.dense, self.supports_masking = layers.Dense(WIDTH, activation="relu"), True
        self.norms = [layers.LayerNormalization() for _ in range(3)]

    def call(self, inputs: Any, encoded: Any) -> Any:
        x = self.norms[0](inputs + self.own(inputs, inputs, inputs, use_causal_mask=True))
        x = self.norms[1](x + self.other(x, encoded, encoded))
        return self.norms[2](x + self.dense(x))


def train(wrap: Wrap) -> Trained:
    english, spanish = classes(0, WORDS, SAMPLES, LENGTH), classes(1, WORDS, SAMPLES, LENGTH + 1)
    for rows in (english, spanish):
        rows[np.arange(rows.shape[1]) >= 3 + np.arange(SAMPLES)[:, None] % 4] = 0
    encoder_inputs = keras.Input((None,), dtype="int64", name="encoder_inputs")
    decoder_inputs = keras.Input((None,), dtype="int64", name="decoder_inputs")
    encoded = Encoder()(PositionalEmbedding()(encoder_inputs))
    decoded = layers.Dropout(NO_DROPOUT)(Decoder()(PositionalEmbedding()(decoder_inputs), encoded))
    model = wrap(keras.Model([encoder_inputs, decoder_inputs], layers.Dense(WORDS, activation="softmax")(decoded)))
    model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    data = batched({"encoder_inputs": english, "decoder_inputs": spanish[:, :-1]}, spanish[:, 1:])
    return model, model.fit(data, epochs=2, validation_data=data, verbose=0).history


if __name__ == "__main__":
    as_script(train)
