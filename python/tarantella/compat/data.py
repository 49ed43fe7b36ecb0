"""`tnt.data`: a rank's part of a dataset, for training loops of your own. `tnt.Model` does not need it."""

from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.keras.adapter import datasets
from tarantella.keras.data import split

__all__ = ["Dataset"]


class Dataset:
    """A batched dataset from which each rank takes its samples of every batch, ``batch[rank::num_ranks]``.

    Args:
        dataset: any `tf.data.Dataset`, with the global batch size, or without a batch.
        num_ranks: how many parts; None: one for each rank of the job.
        rank: whose part; None: this rank's.
        shuffle_seed: not used: in a job, shuffles without a seed get the same one on all ranks when they are made.

    Raises:
        ValueError: elements are of a kind that cannot be split.

    Examples:
        >>> mine = tnt.data.Dataset(images.batch(256)).distribute_dataset_across_ranks()
        >>> model.fit(mine, tnt_distribute_dataset=False)
    """

    def __init__(
        self, dataset: tf.data.Dataset, num_ranks: int | None = None, rank: int | None = None, shuffle_seed: int | None = 42
    ) -> None:
        self.base_dataset = dataset
        self.num_ranks = runtime.get_size() if num_ranks is None else num_ranks
        self.rank = runtime.get_rank() if rank is None else rank
        self.shuffle_seed = shuffle_seed
        self._micro_batch_size: int | None = None

    @property
    def micro_batch_size(self) -> int | None:
        """How many samples this rank has of a whole batch; None before they are distributed, or if batches differ."""
        return self._micro_batch_size

    @property
    def num_samples(self) -> int:
        """How many samples the dataset has; counted if it does not know."""
        return self.get_number_samples(self.base_dataset)

    @classmethod
    def get_number_samples(cls, dataset: tf.data.Dataset) -> int:
        """How many samples a dataset has, batched or not.

        Raises:
            ValueError: it has no end.
        """
        if dataset.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError("a dataset without an end has no number of samples")
        if datasets.last_batch(dataset) is None:
            known = int(dataset.cardinality())
            return known if known >= 0 else int(dataset.reduce(tf.constant(0, tf.int64), lambda n, *_: n + 1))
        return int(dataset.reduce(tf.constant(0, tf.int64), lambda n, *batch: n + split.samples_in(batch)))

    def distribute_dataset_across_ranks(
        self, user_micro_batch_size: int | None = None, is_training: bool = True, apply_batch: bool = True
    ) -> tf.data.Dataset:
        """This rank's samples.

        A last batch of fewer samples than ranks is filled up with zeros, so that every rank has as many batches.

        Args:
            user_micro_batch_size: how many samples of a batch each rank shall have; needed if the dataset has no batch.
            is_training: False gives all samples to every rank, in batches of one rank's size.
            apply_batch: False gives this rank's samples one by one.

        Raises:
            ValueError: the batch has fewer samples than there are ranks, or is not that of all micro-batches, or there is none
                and no micro-batch size was given.
        """
        batched = self._batched(user_micro_batch_size)
        if not is_training:
            whole = self.base_dataset if datasets.last_batch(self.base_dataset) is None else batched.unbatch()
            return whole.batch(self._micro_batch_size) if apply_batch else whole
        parts = batched.map(self._part, num_parallel_calls=1, deterministic=True)
        return parts if apply_batch else parts.unbatch()

    def get_gradient_scaling_callback(self) -> None:
        """None: `tnt.Model` weights each rank's gradients by its samples itself."""

    def _batched(self, micro_batch_size: int | None) -> tf.data.Dataset:
        last = datasets.last_batch(self.base_dataset)
        if last is None:
            if micro_batch_size is None:
                raise ValueError("the dataset has no batch: batch it, or give a micro-batch size")
            self._micro_batch_size = micro_batch_size
            return self.base_dataset.batch(micro_batch_size * self.num_ranks)
        batch_size = datasets.batch_size_argument(last)
        if batch_size is not None and batch_size < self.num_ranks:
            raise ValueError(f"a batch of {batch_size} samples is too small to be distributed to {self.num_ranks} ranks")
        if micro_batch_size is not None and batch_size not in (None, micro_batch_size * self.num_ranks):
            raise ValueError(
                f"a micro-batch size of {micro_batch_size} is not consistent with batches of {batch_size} on "
                f"{self.num_ranks} ranks"
            )
        if batch_size is not None:
            self._micro_batch_size = (batch_size + self.num_ranks - 1 - self.rank) // self.num_ranks
        split.check_batched(self.base_dataset.element_spec)
        return self.base_dataset

    def _part(self, *batch: Any) -> Any:
        """This rank's samples of a batch, which is padded with zeros to one sample per rank."""

        def part(tensor: Any) -> Any:
            missing = tf.maximum(self.num_ranks - tf.shape(tensor)[0], 0)
            filled = tf.pad(tensor, [[0, missing], *([[0, 0]] * (len(tensor.shape) - 1))])
            return filled[self.rank :: self.num_ranks]

        whole = batch if isinstance(self.base_dataset.element_spec, tuple) else batch[0]
        return tf.nest.map_structure(part, whole)
