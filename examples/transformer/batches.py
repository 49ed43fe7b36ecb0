"""Batches of sentences of similar length, each of about so many tokens.

Every rank makes the same batches, so the order is drawn by the number of the epoch. A rank may take its own part of each batch
(`part`), which is how data is distributed by hand, or leave that to `tnt.Model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tokens import BEGIN, PAD

POOL = 50
"""So many batches are drawn at random and sorted by length together."""


class Pairs:
    """Sources and targets as numbers of tokens, without those that are longer than the model takes."""

    def __init__(self, sources: Sequence[list[int]], targets: Sequence[list[int]], max_length: int) -> None:
        both = list(zip(sources, targets, strict=True))
        kept = [pair for pair in both if max(map(len, pair)) <= max_length]
        self.skipped = len(both) - len(kept)
        self.sources = [np.array(source, np.int32) for source, _ in kept]
        self.targets = [np.array(target, np.int32) for _, target in kept]
        self.lengths = np.array([max(len(source), len(target)) for source, target in kept], np.int64)

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def tokens(self) -> int:
        """The number of tokens in the targets, which the model learns to write."""
        return sum(map(len, self.targets))


def batches(pairs: Pairs, tokens: int, seed: int | None) -> list[np.ndarray]:
    """Numbers of the pairs of each batch: as many as have together at most this many tokens, with padding, and at least one.

    seed: of a random order; None: sorted by length.
    """
    order = np.arange(len(pairs))
    if seed is None:
        return list(_cut(order[np.argsort(pairs.lengths, kind="stable")], pairs, tokens))
    rng = np.random.default_rng(seed)
    rng.shuffle(order)
    pool = max(1, POOL * tokens // max(1, int(pairs.lengths.mean())))
    found: list[np.ndarray] = []
    for begin in range(0, len(order), pool):
        some = order[begin : begin + pool]
        found += _cut(some[np.argsort(pairs.lengths[some], kind="stable")], pairs, tokens)
    return [found[number] for number in rng.permutation(len(found))]


def _cut(order: np.ndarray, pairs: Pairs, tokens: int) -> Iterator[np.ndarray]:
    """Sorted by length, so the last pair of a batch is its longest."""
    begin = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - begin) * pairs.lengths[order[end]] > tokens:
            yield order[begin:end]
            begin = end


def dataset(pairs: Pairs, order: Sequence[np.ndarray], part: tuple[int, int] = (0, 1)) -> tf.data.Dataset:
    """((source, target so far), next token), and a weight of 0 for padding.

    part: rank and number of ranks, of the part of each batch; (0, 1) for whole batches.
    """

    def arrays() -> Iterator[tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]]:
        for numbers in order:
            # padded as the whole batch is: then each rank's mean is one over as many positions for each sentence
            source, target = (_padded(each, numbers, part) for each in (pairs.sources, pairs.targets))
            before = np.concatenate([np.full((len(target), 1), BEGIN, np.int32), target[:, :-1]], 1)
            yield (source, before), target, (target != PAD).astype(np.float32)

    numbers = tf.TensorSpec((None, None), tf.int32)
    weights = tf.TensorSpec((None, None), tf.float32)
    made = tf.data.Dataset.from_generator(arrays, output_signature=((numbers, numbers), numbers, weights))
    return made.apply(tf.data.experimental.assert_cardinality(len(order))).prefetch(4)


def _padded(sentences: Sequence[np.ndarray], numbers: np.ndarray, part: tuple[int, int]) -> np.ndarray:
    rank, size = part
    width = max(len(sentences[number]) for number in numbers)
    rows = numbers[rank::size]
    padded = np.full((len(rows), width), PAD, np.int32)
    for row, number in zip(padded, rows, strict=True):
        row[: len(sentences[number])] = sentences[number]
    return padded
