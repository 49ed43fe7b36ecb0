"""From what `fit`, `evaluate` and `predict` are given as data to this rank's part of each global batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tarantella import collectives, runtime
from tarantella.errors import InvalidArgumentError
from tarantella.keras.adapter import datasets
from tarantella.keras.data import pushdown, split


def distributed(
    batches: tf.data.Dataset, distribute: bool, what: str, same_length: bool, shards: int | None = None
) -> tf.data.Dataset:
    """This rank's parts with their shares, as `data.distribute` gives them. Collective.

    Args:
        batches: of the global batch size; or, with ``distribute=False``, this rank's own.
        what: for the log and for errors, such as ``"training data"``.
        shards: into how many each batch is divided; None: one for each rank.
        same_length: whether all ranks must have as many batches: where all of them are taken, and each is a step of all ranks.

    Raises:
        MismatchError: the ranks' datasets are not of one length. InvalidArgumentError: there is nothing in them.
        ValueError: the elements cannot be split.
    """
    cardinality = int(batches.cardinality())
    if same_length:
        unknown = {tf.data.INFINITE_CARDINALITY: None, tf.data.UNKNOWN_CARDINALITY: None}
        collectives.require_same(what, batches=unknown.get(cardinality, cardinality))
    if cardinality == 0:
        raise InvalidArgumentError(f"{what}: the dataset is empty")
    if not distribute:
        return split.whole(batches)
    division = split.Division.among(runtime.get_size(), runtime.get_rank(), shards)
    early, reason = None, "another rank could not otherwise"
    try:
        early = pushdown.distribute(batches, division)
    except pushdown.PushdownError as late:
        reason = str(late)
    if int(collectives.all_reduce(int(early is not None), op="min")) and early is not None:
        runtime.logger.info("%s: each rank runs the maps before the batch on its own samples alone", what)
        return early
    runtime.logger.info("%s: every rank makes whole batches and takes its part at the end: %s", what, reason)
    return split.distribute(batches, division)


def with_micro_batches(
    x: Any, batch_size: int | None, micro_batch_size: int | None, distribute: bool
) -> tuple[Any, int | None]:
    """Data and batch size where the user has said how many samples of a batch each rank shall have.

    A dataset without a batch is batched; else the batch must be that of all ranks together, or of this one's own data.

    Raises:
        InvalidArgumentError: it is not, or micro_batch_size is no positive integer.
    """
    if micro_batch_size is None:
        return x, batch_size
    if not isinstance(micro_batch_size, int) or micro_batch_size < 1:
        raise InvalidArgumentError(f"the micro-batch size is {micro_batch_size!r}: use a positive integer")
    ranks = runtime.get_size() if distribute else 1
    wanted = micro_batch_size * ranks
    if isinstance(x, tf.data.Dataset):
        last = datasets.last_batch(x)
        if last is None:
            return x.batch(wanted), None
        batch_size = datasets.batch_size_argument(last)
    if batch_size not in (None, wanted):
        raise InvalidArgumentError(
            f"a micro-batch of {micro_batch_size} samples on each of {ranks} ranks makes a batch of {wanted}, and the "
            f"data has batches of {batch_size}: leave the micro-batch size out, or batch by {wanted}"
        )
    return x, None if isinstance(x, tf.data.Dataset) else wanted
