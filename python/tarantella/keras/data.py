"""Each rank's part of each global batch.

Rank r of n takes the samples ``batch[r::n]``, whatever made the batch: the split is the last thing that happens to the
dataset, so every operation before it does what it does on one device. A rank whose part is empty gets the first sample of the
batch, with weight zero: a model cannot run on no samples at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

_SLICEABLE = (tf.TensorSpec, tf.RaggedTensorSpec)


@dataclass(frozen=True)
class Share:
    """What a training step must know of its batch beside the samples.

    Scalars, int64: the samples of this rank (0: the one there does not count), those of the global batch (0: not known, as
    every rank has data of its own) and a fingerprint of the global batch.
    """

    samples: tf.Tensor
    total: tf.Tensor
    fingerprint: tf.Tensor


def distribute(dataset: tf.data.Dataset, rank: int, size: int) -> tf.data.Dataset:
    """The dataset with this rank's part of each batch: elements are pairs of the part and its share.

    Raises:
        ValueError: the elements have no batch axis, or are of a kind that cannot be split.
    """
    check_batched(dataset.element_spec)
    return dataset.map(
        lambda *element: _split(_structure(dataset, element), rank, size),
        num_parallel_calls=1,
        deterministic=True,
    )


def whole(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset as it is, for a rank that has data of its own, in the form `distribute` gives."""
    check_batched(dataset.element_spec)

    def with_share(*element: Any) -> tuple[Any, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
        batch = _structure(dataset, element)
        samples = _count(tf.nest.flatten(batch)[0])
        return batch, (samples, tf.constant(0, tf.int64), tf.constant(0, tf.int64))

    return dataset.map(with_share, num_parallel_calls=1, deterministic=True)


def batch_size(dataset: tf.data.Dataset) -> int | None:
    """How many samples the dataset's batches have but for the last one, if it says so; they may have been filtered since."""
    specs = tf.nest.flatten(dataset.element_spec)
    if specs and specs[0].shape.rank and specs[0].shape[0] is not None:
        return int(specs[0].shape[0])
    while dataset is not None and "Unbatch" not in type(dataset).__name__:
        if hasattr(dataset, "_batch_size"):
            return int(dataset._batch_size)
        dataset = getattr(dataset, "_input_dataset", None)
    return None


def batch_spec(dataset: tf.data.Dataset) -> Any:
    """The spec of the batches alone, of a dataset that `distribute` or `whole` made."""
    return dataset.element_spec[0]


def unpack(element: Any) -> tuple[Any, Share]:
    """Batch and share of an element of such a dataset."""
    batch, share = element
    return batch, Share(*share)


def may_be_empty(dataset: tf.data.Dataset) -> bool:
    """Whether this rank's part of a batch can have no sample; not if the size of every batch is known and large enough."""
    return any(spec.shape.rank is None or spec.shape[0] is None for spec in tf.nest.flatten(batch_spec(dataset)))


def check_batched(element_spec: Any) -> None:
    """Refuses what cannot be split by sample, saying why."""
    specs = tf.nest.flatten(element_spec)
    if not specs:
        raise ValueError("the dataset has no elements to split")
    for spec in specs:
        if not isinstance(spec, _SLICEABLE):
            raise ValueError(
                f"cannot split {type(spec).__name__} elements by sample: use dense or ragged tensors, "
                "or tnt_distribute_dataset=False"
            )
        if spec.shape.rank == 0:
            raise ValueError("the dataset is not batched: batch it with the global batch size, dataset.batch(...)")


def _structure(dataset: tf.data.Dataset, element: tuple[Any, ...]) -> Any:
    """An element as the dataset has it: `map` hands the members of a tuple over one by one."""
    return element if isinstance(dataset.element_spec, tuple) else element[0]


def _count(tensor: Any) -> tf.Tensor:
    if isinstance(tensor, tf.RaggedTensor):
        return tf.cast(tensor.nrows(), tf.int64)
    return tf.shape(tensor, tf.int64)[0]


def _split(batch: Any, rank: int, size: int) -> tuple[Any, tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
    first = tf.nest.flatten(batch)[0]
    total = _count(first)
    samples = tf.maximum((total - rank + size - 1) // size, 0)
    known = None if isinstance(first, tf.RaggedTensor) else first.shape[0]

    def part(tensor: Any) -> Any:
        if known is not None and known > rank:
            return tensor[rank::size]  # the shape of the part stays known
        begin = tf.where(samples > 0, tf.constant(rank, tf.int64), 0)
        end = tf.where(samples > 0, total, 1)
        one_or_more = tensor[begin:end:size]
        if known is None:
            return one_or_more
        # a rank that never has a sample: the one there must not look like a part of a known size (may_be_empty)
        return tf.compat.v1.placeholder_with_default(one_or_more, [None, *one_or_more.shape[1:]])

    return tf.nest.map_structure(part, batch), (samples, total, _fingerprint(batch, total))


def _fingerprint(batch: Any, total: tf.Tensor) -> tf.Tensor:
    """A number that differs between batches that differ in size or in their first sample."""
    tensors = [t for t in tf.nest.flatten(batch) if isinstance(t, tf.Tensor) and t.dtype != tf.string]
    hashes = [
        tf.bitcast(tf.fingerprint(tf.reshape(tensor[:1], [1, -1]))[0], tf.int64)
        for tensor in tensors
        if tensor.dtype.is_numpy_compatible and tensor.dtype != tf.bool
    ]
    return tf.add_n([total, *hashes])
