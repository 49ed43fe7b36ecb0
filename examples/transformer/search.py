"""Translation by beam search, in a plain Keras model that has the layers of the one that is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from network import Heads, Transformer
from tokens import BEGIN, END, PAD

keras = tf.keras

IMPOSSIBLE = -1e9
EXTRA = 30
"""A translation may have so many tokens more than its source."""


class Translator(keras.Model):
    """Sources, as numbers of tokens, to the numbers of their translations: (batch, max_length), with padding after END.

    It shares its layers, so it always has the weights of the training. `predict` works on this rank alone.
    """

    def __init__(self, transformer: Transformer, beams: int = 4, alpha: float = 0.6, **options: Any) -> None:
        super().__init__(**options)
        self.transformer, self.beams, self.alpha = transformer, beams, alpha

    def call(self, source: tf.Tensor) -> tf.Tensor:
        layer, beams, batch = self.transformer, self.beams, tf.shape(source)[0]
        memory, mask = (tf.repeat(each, beams, 0) for each in layer.encode(source))
        memories = [block.other.keys_and_values(memory) for block in layer.decoder]
        nothing = tf.zeros([batch * beams, layer.size.heads, 0, layer.size.width // layer.size.heads])
        growing = tf.TensorShape([None, layer.size.heads, None, layer.size.width // layer.size.heads])
        limit = tf.minimum(layer.max_length, tf.shape(source)[1] + EXTRA)

        def unfinished(step: tf.Tensor, tokens: Any, scores: Any, lengths: Any, done: tf.Tensor, heads: Any) -> tf.Tensor:
            return (step < limit) & ~tf.reduce_all(done)

        def extend(
            step: tf.Tensor, tokens: tf.Tensor, scores: tf.Tensor, lengths: tf.Tensor, done: tf.Tensor, before: list[Heads]
        ) -> tuple[Any, ...]:
            x, heads = layer.vectors(tokens[:, -1:], step), []
            for block, heads_before, heads_memory in zip(layer.decoder, before, memories, strict=True):
                x, now = block.next(x, heads_before, heads_memory, mask)
                heads.append(now)
            following = tf.reshape(tf.nn.log_softmax(layer.logits(x)[:, 0]), [batch, beams, layer.vocabulary])
            # a beam that has ended goes on with padding, for nothing
            padding = tf.one_hot(PAD, layer.vocabulary, on_value=0.0, off_value=IMPOSSIBLE)
            sums = scores[..., None] + tf.where(done[..., None], padding, following)
            lengths += tf.cast(~done, tf.float32)
            chosen = tf.math.top_k(tf.reshape(sums / self._penalty(lengths)[..., None], [batch, -1]), beams).indices
            parents, token = chosen // layer.vocabulary, chosen % layer.vocabulary
            rows = tf.reshape(parents + tf.range(batch)[:, None] * beams, [-1])
            tokens = tf.concat([tf.gather(tokens, rows), tf.reshape(token, [-1, 1])], 1)
            scores = tf.gather(tf.reshape(sums, [batch, -1]), chosen, batch_dims=1)
            lengths, done = (tf.gather(each, parents, batch_dims=1) for each in (lengths, done))
            heads = tf.nest.map_structure(lambda x: tf.gather(x, rows), heads)
            return step + 1, tokens, scores, lengths, done | (token == END), heads

        first = tf.one_hot(tf.zeros(batch, tf.int32), beams, on_value=0.0, off_value=IMPOSSIBLE)  # all beams but one are copies
        start = (tf.constant(0), tf.fill([batch * beams, 1], BEGIN), first, tf.zeros([batch, beams]))
        _, tokens, *_ = tf.while_loop(
            unfinished,
            extend,
            (*start, tf.zeros([batch, beams], tf.bool), [(nothing, nothing) for _ in layer.decoder]),
            shape_invariants=(
                *(tf.TensorShape([]), tf.TensorShape([None, None])),
                *(tf.TensorShape([None, beams]) for _ in range(3)),
                [(growing, growing) for _ in layer.decoder],
            ),
        )
        best = tf.reshape(tokens, [batch, beams, -1])[:, 0, 1:]
        return tf.pad(best, [[0, 0], [0, layer.max_length - tf.shape(best)[1]]], constant_values=PAD)

    def _penalty(self, lengths: tf.Tensor) -> tf.Tensor:
        """What sums of logarithms are divided by: long translations are not less likely for their length alone."""
        return ((5.0 + lengths) / 6.0) ** self.alpha


def translate(translator: Translator, sources: Sequence[np.ndarray], batch_size: int) -> np.ndarray:
    """The translations of sentences, in their order: (sentences, max_length)."""
    order = np.argsort([len(source) for source in sources], kind="stable")
    found = np.full((len(sources), translator.transformer.max_length), PAD, np.int32)
    if not len(sources):
        return found
    parts = [order[begin : begin + batch_size] for begin in range(0, len(order), batch_size)]

    def batches() -> Any:
        for part in parts:
            batch = np.full((len(part), max(len(sources[number]) for number in part)), PAD, np.int32)
            for row, number in zip(batch, part, strict=True):
                row[: len(sources[number])] = sources[number]
            yield batch

    data = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((None, None), tf.int32))
    found[order] = translator.predict(data.apply(tf.data.experimental.assert_cardinality(len(parts))), verbose=0)
    return found
