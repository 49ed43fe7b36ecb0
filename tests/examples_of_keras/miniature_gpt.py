"""A small GPT: text vectorised in the dataset, causal attention, two outputs of which one has a loss, text in a callback."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

from example import BATCH, SAMPLES, Trained, Wrap, as_script, classes

WORDS = ("the", "film", "was", "long", "good", "bad", "and", "loud", "not", "very")
LENGTH, VOCABULARY, WIDTH = 6, 12, 8


class TokenAndPosition(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = layers.Embedding(VOCABULARY, WIDTH), layers.Embedding(LENGTH, WIDTH)

    def call(self, x: Any) -> Any:
        return self.tokens(x) + self.positions(tf.range(LENGTH))


def network() -> keras.Model:
    inputs = keras.Input((LENGTH,), dtype="int32")
    embedded = TokenAndPosition()(inputs)
    attended = layers.MultiHeadAttention(2, WIDTH)(embedded, embedded, use_causal_mask=True)
    first = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([embedded, attended]))
    block = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([first, layers.Dense(WIDTH, activation="relu")(first)]))
    return keras.Model(inputs, [layers.Dense(VOCABULARY)(block), block])


class TextGenerator(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        tokens = [2]
        while len(tokens) < LENGTH:
            logits, _ = self.model.predict(np.array([tokens + [0] * (LENGTH - len(tokens))]), verbose=0)
            tokens.append(int(np.argmax(logits[0, len(tokens) - 1])))
        self.made += tokens


def train(wrap: Wrap) -> Trained:
    texts = [" ".join(WORDS[i] for i in row) for row in classes(0, len(WORDS), SAMPLES, LENGTH + 1)]
    vectorize = layers.TextVectorization(max_tokens=VOCABULARY, output_sequence_length=LENGTH + 1)
    data = tf.data.Dataset.from_tensor_slices(texts).batch(BATCH)
    vectorize.adapt(data)

    def shifted(batch: Any) -> Any:
        tokens = vectorize(batch)
        return tokens[:, :-1], tokens[:, 1:]

    model = wrap(network())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss=[loss, None])
    text = TextGenerator()
    history = model.fit(data.map(shifted, num_parallel_calls=tf.data.AUTOTUNE), epochs=2, callbacks=[text], verbose=0).history
    return model, {**history, "made": text.made}


if __name__ == "__main__":
    as_script(train)
