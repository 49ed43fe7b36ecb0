"""The outputs of `predict` on several ranks, which each computed those of its samples, in the order of the data."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import collectives, runtime
from tarantella.errors import UnsupportedError
from tarantella.keras import adapter
from tarantella.keras.data import split

_BLOCK_BYTES = 64 << 20  # of the rows of all ranks that are gathered at once
_REMEDY = "use tnt_distribute_dataset=False, with which every rank computes all of it"


def with_sizes(outputs: Any, share: split.Share) -> Any:
    """The outputs of a model's `predict_step` for this rank's part of a batch, with the sizes of the part and the batch."""
    return outputs, (tf.reshape(share.samples, [1]), tf.reshape(share.total, [1]))


class OwnOutputs(adapter.Callback):
    """The first in the list of callbacks: it leaves the later ones the model's outputs, for this rank's samples."""

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        if logs:
            outputs, _ = logs.pop("outputs")
            logs.update(adapter.logs_of_outputs(outputs))


@dataclass(frozen=True)
class Rows:
    """The order of the rows of all ranks, which each took ``batch[rank::size]`` of every batch."""

    samples: NDArray[np.int64]
    """The number of this rank's samples in each batch; where it is 0, one row was computed that does not count."""
    totals: NDArray[np.int64]
    """The number of all ranks' samples in each batch."""

    def indices(self, rank: int, size: int) -> NDArray[np.int64]:
        """The indices of a rank's rows in the result."""
        begins = np.cumsum(self.totals) - self.totals
        places = [begin + np.arange(rank, total, size) for begin, total in zip(begins, self.totals, strict=True)]
        return np.concatenate(places).astype(np.int64)

    def are_strided(self, rank: int, size: int) -> bool:
        """Whether this rank's samples are ``batch[rank::size]``: of tensors of several sizes they may be others."""
        return bool((self.samples == np.maximum((self.totals - rank + size - 1) // size, 0)).all())

    def that_count(self) -> NDArray[np.bool_]:
        """Whether each computed row of this rank belongs to a sample."""
        return np.repeat(self.samples > 0, np.maximum(self.samples, 1))


def in_order(predicted: Any, on_all_ranks: bool = True) -> Any:
    """The outputs of all ranks, in the order of the data. Collective.

    Args:
        predicted: Keras' result with the outputs of `with_sizes`: a structure of arrays with a row for each computed sample.
        on_all_ranks: False gives the master the result, and the others None.
    """
    outputs, sizes = predicted
    rows = Rows(*sizes)
    result = tf.nest.map_structure(lambda array: _gathered(array, rows, on_all_ranks), outputs)
    return result if on_all_ranks or runtime.is_master_rank() else None


def _gathered(array: Any, rows: Rows, on_all_ranks: bool) -> NDArray[Any] | None:
    counts, rank, size = rows.that_count(), runtime.get_rank(), runtime.get_size()
    problem = None
    if not rows.are_strided(rank, size):
        problem = f"the batches have tensors of several sizes, which {size} ranks do not divide"
    elif isinstance(array, tf.RaggedTensor):
        problem = "the model's output is ragged"
    elif array.dtype.hasobject:
        problem = "the model's output is text"
    elif len(array) != len(counts):
        problem = f"the model's output has {len(array)} rows for {len(counts)} samples"
    collectives.agree_on_failure(None if problem is None else UnsupportedError(f"predict: {problem}: {_REMEDY}"))

    places = [rows.indices(rank, size) for rank in range(size)]
    counted = array[counts]
    keep = on_all_ranks or runtime.is_master_rank()
    result = np.empty((int(rows.totals.sum()), *array.shape[1:]), array.dtype) if keep else None
    block = max(1, _BLOCK_BYTES // max(1, size * array.dtype.itemsize * int(np.prod(array.shape[1:]))))
    for begin in range(0, max(len(rank_indices) for rank_indices in places), block):
        end = min(begin + block, max(len(rank_indices) for rank_indices in places))
        sent = np.zeros((end - begin, *array.shape[1:]), array.dtype)
        own = counted[begin:end]
        sent[: len(own)] = own
        for rank_indices, received in zip(places, collectives.all_gather(sent), strict=True):
            wanted = rank_indices[begin:end]
            if result is not None:
                result[wanted] = received[: len(wanted)]
    return result
