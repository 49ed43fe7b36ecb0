"""The position in the data: noted while training, and found again by going through the data without training.

What a dataset gives depends on what was taken of it before: a shuffle draws a new seed for each iterator, a generator goes on
where it was. So a training that goes on lets Keras run through its epochs and steps from the first one on, with a training
function that takes the batches and does nothing with them (`Replay.step`): every iterator is made, and everything is told of
epochs, as it was. Where nothing in the dataset depends on how many elements were taken, but only on how many iterators were
made and begun, one batch is enough of each of the epochs before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import InvalidArgumentError
from tarantella.keras import adapter
from tarantella.keras.adapter import datasets
from tarantella.keras.data import split

if TYPE_CHECKING:
    from collections.abc import Sequence

# an iterator of these has no state that outlives it, but for a shuffle's seeds, of which each draws one when it begins
_MADE_ANEW = frozenset(
    {
        *("AssertCardinality", "Batch", "Enumerate", "Filter", "FixedLengthRecord", "FlatMap", "Interleave", "Map", "Options"),
        *("PaddedBatch", "ParallelBatch", "ParallelInterleave", "ParallelMap", "Prefetch", "Range", "Scan", "Shard", "Shuffle"),
        *("Skip", "TFRecord", "Take", "Tensor", "TensorSlice", "TextLine", "Unbatch", "Window", "Zip"),
    }
)


@dataclass(frozen=True)
class Position:
    """Where a training is: so many steps of this epoch are done, and so many of the whole `fit`."""

    epoch: int
    step: int
    steps_done: int

    def __str__(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.step + 1}"


# ---------------------------------------------------------------------------------------------------- what is in a dataset


def depends_on_iterators_only(dataset: tf.data.Dataset) -> bool:
    """Whether what an iterator of the dataset gives depends on nothing but how many were made and begun before."""
    for one in datasets.everything(dataset):
        operations = list(datasets.operations(one))
        if not _is_made_anew(datasets.kind(one)) or any(name.startswith("Shuffle") for name in operations):
            return False
        if any(_keeps_state(name) for name in operations):
            return False
    return True


def _is_made_anew(kind: str) -> bool:
    name, dataset, version = kind.partition("Dataset")
    return bool(dataset) and name in _MADE_ANEW and version in ("", "V1", "V2", "V3", "V4")


def runs_python(dataset: tf.data.Dataset) -> bool:
    """Whether making its elements runs Python code, such as a generator."""
    return any("PyFunc" in name for one in datasets.everything(dataset) for name in datasets.operations(one))


def _keeps_state(operation: str) -> bool:
    """Whether the operation may give something else when it runs again; what it calls stands by itself among the operations."""
    # reading is called stateful only lest TensorFlow read a file once for all
    if operation in ("Placeholder", "ReadFile") or "PartitionedCall" in operation or _is_made_anew(operation):
        return False
    return datasets.is_stateful(operation)


# ------------------------------------------------------------------------------------------------------ noting batches


class FingerprintedDataset:
    """A dataset whose iterators note the fingerprint of each global batch that they give.

    Args:
        dataset: of batches; with their shares, as `data.distribute` gives them, on several ranks.
        has_shares: whether it is.
    """

    def __init__(self, dataset: tf.data.Dataset, has_shares: bool) -> None:
        with tf.device("CPU:0"):
            self._first = tf.Variable(0, dtype=tf.int64, trainable=False, name="first_fingerprint")
            self._last = tf.Variable(0, dtype=tf.int64, trainable=False, name="last_fingerprint")
        single = not isinstance(dataset.element_spec, tuple)

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
        def note(*element: Any) -> Any:
            whole = element[0] if single else element
            batch, total = whole, None
            if has_shares:
                (batch, share), *_ = split.unpack(whole)
                total = share.total
            count = split.samples_in(batch) if total is None else total
            # rank 0 has the first sample of the global batch, on any number of ranks
            heads = [t[:1] for t in tf.nest.flatten(batch) if isinstance(t, tf.Tensor)]
            fingerprint = count + split.fingerprint(heads)
            self._first.assign(tf.where(self._first == 0, fingerprint, self._first))
            self._last.assign(fingerprint)
            return whole

        # what is noted must belong to the batch that was given last: nothing may run ahead of it, but all before it may
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        self.dataset = dataset.prefetch(tf.data.AUTOTUNE).map(note).with_options(options)

    def first(self) -> int:
        """That of the batch that was given first."""
        return int(self._first.numpy())

    def last(self) -> int:
        """That of the batch that was given last; on ranks other than 0 it says little."""
        return int(self._last.numpy())


# ---------------------------------------------------------------------------------------------------- finding it again


class Replay:
    """Goes through the data from the beginning of a `fit` to a position. All ranks do so together.

    Args:
        model: the one that is trained.
        noted: its data.
        target: where to.
        fingerprints: of the first batch of all and of the last before the position, when the checkpoint was written.
        initial_epoch: with which `fit` begins.
        skips_epochs: whether one batch is enough of each of the epochs before.
    """

    def __init__(
        self,
        model: Any,
        noted: FingerprintedDataset,
        target: Position,
        fingerprints: Sequence[int],
        initial_epoch: int,
        skips_epochs: bool,
    ) -> None:
        self.target = target
        self._model, self._noted = model, noted
        self._first, self._last = fingerprints
        self._skips = skips_epochs
        self._epoch = initial_epoch
        self._taken = 0
        self._step = 0  # of the epoch

    def begin_epoch(self, epoch: int) -> None:
        """Keras begins an epoch."""
        self._epoch, self._step = epoch, 0

    def step(self, iterator: Any) -> dict[str, Any]:
        """Takes the place of the training function, and takes what it would have taken. Collective at a few steps.

        Raises:
            StopIteration: there are no batches left. InvalidArgumentError: the batches are not those of the checkpoint.
        """
        wanted = adapter.steps_per_execution(self._model)
        before = self._epoch < self.target.epoch
        if not before:
            wanted = min(wanted, self.target.step - self._step)
        begins = self._step == 0  # a shuffle makes the iterator of a shuffle before it when it is first asked, not before
        taken = self._take(iterator, wanted) if begins or not (before and self._skips) else wanted
        if taken == 0:
            raise StopIteration
        self._step += taken
        return {}

    def is_there(self) -> bool:
        """Whether the last step was the last one before the position."""
        return self._epoch == self.target.epoch and self._step >= self.target.step

    def _take(self, iterator: Any, wanted: int) -> int:
        for taken in range(wanted):
            if next(iterator, None) is None:
                return taken
            if self._taken == 0:
                self._check(self._noted.first(), self._first, "the first batch")
            self._taken += 1
        return wanted

    def check_last(self) -> None:
        """The batch before the position is what it was. Collective.

        Raises:
            InvalidArgumentError: it is another one.
        """
        if self.target.step > 0 or not self._skips:
            self._check(self._noted.last(), self._last, f"the last batch before {self.target}")

    def _check(self, found: int, expected: int, what: str) -> None:
        failure = None
        if runtime.is_master_rank() and found != expected:
            failure = changed(
                f"{what} is another one: its samples, their order or the batch size are not what they were. Give a seed to "
                "whatever is random in the dataset, make it anew for each fit"
            )
        collectives.agree_on_failure(failure)

    def check_end_of_epoch(self) -> None:
        """Keras ends an epoch: it must not be the one in which the position lies.

        Raises:
            InvalidArgumentError: the data has fewer batches.
        """
        if self._epoch >= self.target.epoch:
            raise changed(f"it ends after {self._step} batches of epoch {self._epoch + 1}: restore it")


def changed(how: str) -> InvalidArgumentError:
    """The error that says so of the training data. how: and what to do."""
    error: InvalidArgumentError = InvalidArgumentError(
        f"the training data has changed since the checkpoint was written: {how}, or begin anew with another folder"
    )
    return error
