"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017), encoder and decoder, of Keras layers.

Layers are normalised before attention and feed-forward (as in tensor2tensor), which trains without a long warm-up. One table
has the vectors of both languages' tokens, and gives the logits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tokens import PAD

keras = tf.keras  # Keras 3, or legacy Keras with TF_USE_LEGACY_KERAS=1

Heads = tuple[tf.Tensor, tf.Tensor]
"""Keys and values of each head, (batch, heads, length, width / heads)."""


@dataclass(frozen=True)
class Size:
    """How large a network is."""

    width: int
    layers: int
    heads: int
    inner: int
    dropout: float = 0.1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


SIZES = {
    "tiny": Size(width=32, layers=1, heads=2, inner=64),
    "small": Size(width=128, layers=2, heads=4, inner=512),
    "base": Size(width=512, layers=6, heads=8, inner=2048),
    "big": Size(width=1024, layers=6, heads=16, inner=4096, dropout=0.3),
}


class Attention(keras.layers.Layer):
    """Attention with several heads, whose keys and values can be kept for the next token."""

    def __init__(self, size: Size, **options: Any) -> None:
        super().__init__(**options)
        self.heads, self.width = size.heads, size.width
        self.query, self.key, self.value, self.out = (
            keras.layers.Dense(size.width, use_bias=False, name=name) for name in ("query", "key", "value", "out")
        )
        self.dropout = keras.layers.Dropout(size.dropout)

    def keys_and_values(self, memory: tf.Tensor) -> Heads:
        return self._split(self.key(memory)), self._split(self.value(memory))

    def attend(self, queries: tf.Tensor, memory: Heads, mask: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """mask: 1 where a query may look, of (batch, 1, queries, keys) or a shape that fits."""
        keys, values = memory
        scores = tf.matmul(self._split(self.query(queries)) * (self.width // self.heads) ** -0.5, keys, transpose_b=True)
        scores += (1 - mask) * -1e9
        seen = tf.matmul(self.dropout(tf.nn.softmax(scores), training=training), values)
        shape = tf.shape(queries)
        return self.out(tf.reshape(tf.transpose(seen, [0, 2, 1, 3]), [shape[0], shape[1], self.width]))

    def call(self, queries: tf.Tensor, memory: tf.Tensor, mask: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        return self.attend(queries, self.keys_and_values(memory), mask, training)

    def _split(self, x: tf.Tensor) -> tf.Tensor:
        shape = tf.shape(x)
        return tf.transpose(tf.reshape(x, [shape[0], shape[1], self.heads, self.width // self.heads]), [0, 2, 1, 3])


class Block(keras.layers.Layer):
    """Attention to the sentence itself, in the decoder also to the encoder's output, and a feed-forward network."""

    def __init__(self, size: Size, decoder: bool = False, **options: Any) -> None:
        super().__init__(**options)
        count = 3 if decoder else 2
        self.norms = [keras.layers.LayerNormalization(epsilon=1e-6, name=f"norm{n}") for n in range(count)]
        self.drops = [keras.layers.Dropout(size.dropout) for _ in range(count)]
        self.itself = Attention(size, name="itself")
        self.other = Attention(size, name="other") if decoder else None
        self.inner = keras.layers.Dense(size.inner, activation="relu", name="inner")
        self.outer = keras.layers.Dense(size.width, name="outer")

    def call(
        self,
        x: tf.Tensor,
        mask: tf.Tensor,
        memory: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        normed = self.norms[0](x)
        x += self.drops[0](self.itself(normed, normed, mask, training=training), training=training)
        if self.other is not None:
            seen = self.other(self.norms[1](x), memory, memory_mask, training=training)
            x += self.drops[1](seen, training=training)
        return x + self.drops[-1](self.outer(self.inner(self.norms[-1](x))), training=training)

    def next(self, x: tf.Tensor, before: Heads, memory: Heads, memory_mask: tf.Tensor) -> tuple[tf.Tensor, Heads]:
        """The output for one more token of each sentence, and the keys and values of all its tokens so far."""
        normed = self.norms[0](x)
        now = tuple(tf.concat(pair, 2) for pair in zip(before, self.itself.keys_and_values(normed), strict=True))
        x += self.itself.attend(normed, now, tf.ones([1, 1, 1, 1]))
        x += self.other.attend(self.norms[1](x), memory, memory_mask)
        return x + self.outer(self.inner(self.norms[2](x))), now


class Transformer(keras.layers.Layer):
    """(source, target so far) to the logits of the next token at each position."""

    def __init__(self, size: Size, vocabulary: int, max_length: int, **options: Any) -> None:
        super().__init__(**options)
        self.size, self.vocabulary, self.max_length = size, vocabulary, max_length
        self.table = self.add_weight(
            name="table",
            shape=(vocabulary, size.width),
            initializer=keras.initializers.RandomNormal(stddev=size.width**-0.5),
            trainable=True,
        )
        self.positions = sinusoids(max_length, size.width)
        self.encoder = [Block(size, name=f"encoder{n}") for n in range(size.layers)]
        self.decoder = [Block(size, decoder=True, name=f"decoder{n}") for n in range(size.layers)]
        self.norms = [keras.layers.LayerNormalization(epsilon=1e-6, name=name) for name in ("encoded", "decoded")]
        self.dropout = keras.layers.Dropout(size.dropout)

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        source, target = inputs
        memory, mask = self.encode(source, training)
        x = self.dropout(self.vectors(target), training=training)
        length = tf.shape(target)[1]
        past = tf.linalg.band_part(tf.ones([1, 1, length, length]), -1, 0)
        for block in self.decoder:
            x = block(x, past, memory, mask, training=training)
        return self.logits(x)

    def encode(self, source: tf.Tensor, training: bool | None = None) -> tuple[tf.Tensor, tf.Tensor]:
        """The encoder's output, and a mask of what is no padding."""
        mask = tf.cast(source != PAD, tf.float32)[:, None, None, :]
        x = self.dropout(self.vectors(source), training=training)
        for block in self.encoder:
            x = block(x, mask, training=training)
        return self.norms[0](x), mask

    def vectors(self, tokens: tf.Tensor, begin: int | tf.Tensor = 0) -> tf.Tensor:
        """The vectors of tokens that stand at `begin` and after it."""
        positions = tf.constant(self.positions)[begin : begin + tf.shape(tokens)[1]]
        return tf.gather(tf.convert_to_tensor(self.table), tokens) * self.size.width**0.5 + positions

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        return tf.einsum("bld,vd->blv", self.norms[1](x), tf.convert_to_tensor(self.table))


def sinusoids(length: int, width: int) -> np.ndarray:
    """A vector for each position: sines and cosines of wavelengths from 2 pi to 20000 pi."""
    rates = 10000.0 ** (-np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


def keras_model(transformer: Transformer) -> Any:
    """A plain Keras model of the network, to train and to store."""
    inputs = [keras.Input((None,), dtype="int32", name=name) for name in ("source", "target")]
    return keras.Model(inputs, transformer(inputs))
