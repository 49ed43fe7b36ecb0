"""The position of a training in its data, and the fingerprints by which batches are recognised."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tarantella.keras.data import split
from tarantella.keras.data.last_elements import looked_at


@dataclass(frozen=True)
class Position:
    """The next step of a training: its epoch, its number in the epoch, and how many steps of the whole `fit` are done."""

    epoch: int
    step: int
    steps_done: int

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step + 1}"


class FingerprintedDataset:
    """A dataset whose iterators keep the fingerprints of the first and of the last global batch that they gave.

    Args:
        dataset: of batches; on several ranks with their shares, as `split.distribute` gives them.
        has_shares: whether the batches come with their shares.
    """

    def __init__(self, dataset: tf.data.Dataset, has_shares: bool) -> None:
        with tf.device("CPU:0"):
            self._first = tf.Variable(0, dtype=tf.int64, trainable=False, name="first_fingerprint")
            self._last = tf.Variable(0, dtype=tf.int64, trainable=False, name="last_fingerprint")
        self._has_shares = has_shares
        self.dataset = looked_at(dataset, self._keep_fingerprint)

    def _keep_fingerprint(self, element: Any) -> None:
        batch, total = element, None
        if self._has_shares:
            (batch, share), *_ = split.as_given(element)
            total = share.total
        count = split.samples_in(batch) if total is None else total
        # rank 0 has the first sample of the global batch, on any number of ranks
        heads = [t[:1] for t in tf.nest.flatten(batch) if isinstance(t, tf.Tensor)]
        fingerprint = count + split.fingerprint(heads)
        self._first.assign(tf.where(self._first == 0, fingerprint, self._first))
        self._last.assign(fingerprint)

    def first(self) -> int:
        """The fingerprint of the first batch."""
        return int(self._first.numpy())

    def last(self) -> int:
        """The fingerprint of the last batch. Only rank 0's is the same on any number of ranks."""
        return int(self._last.numpy())
