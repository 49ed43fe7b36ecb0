"""Gradients of which a rank has a few rows only, such as an embedding's: summed over ranks without filling up the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.reduction import graph_order, ops
from tarantella.keras.reduction.communicator import OpCommunicator
from tarantella.keras.reduction.reducer import Reducer

if TYPE_CHECKING:
    from collections.abc import Sequence

# below, a dense gradient in a bucket with others is quicker than two collectives of its own
SMALLEST_TABLE_BYTES = 64 * 1024


def is_worthwhile(gradient: Any, variable: Any) -> bool:
    """Whether the gradient is reduced by rows. Decided by what all ranks know: the kind of gradient and the variable."""
    if not isinstance(gradient, tf.IndexedSlices) or not tf.as_dtype(adapter.dtype_of(variable)).is_floating:
        return False
    return bool(np.prod(variable.shape) * tf.as_dtype(adapter.dtype_of(variable)).size >= SMALLEST_TABLE_BYTES)


class SparseReducer:
    """Sums the sparse gradients of the same variables over all ranks, again and again. Making one is collective.

    In each step, for each gradient, ranks tell each other how many rows they have. If that moves fewer bytes, all ranks' rows
    are gathered and added up in the order of the ranks; else the table is reduced as a whole. Both give the same bits.

    Raises:
        MismatchError: a rank has other variables.
    """

    name = "gradients"

    def __init__(self, variables: Sequence[Any], context: str = "") -> None:
        tables = [f"{adapter.path(v)} {tuple(v.shape)} {adapter.dtype_of(v)}" for v in variables]
        Reducer("sparse gradients", [], f"{context} with sparse gradients of {', '.join(tables)}").close()  # compares
        self._tables = [(tuple(v.shape), tf.as_dtype(adapter.dtype_of(v))) for v in variables]  # not the variables: they may go
        self._communicator = OpCommunicator()

    def reduce(self, index: int, gradient: tf.IndexedSlices, weight: Any) -> tf.IndexedSlices:
        """The sum over ranks of ``weight * gradient`` of one of the variables; each row once, in ascending order."""
        shape, dtype = self._tables[index]
        wide = dtype if dtype.size >= 4 else tf.float32
        rows = tf.reshape(tf.cast(gradient.indices, tf.int64), [-1])
        values = tf.reshape(tf.cast(gradient.values, wide), [tf.size(rows), int(np.prod(shape[1:], dtype=np.int64))])
        scale = tf.cast(weight, tf.float64)
        with graph_order.after_last():
            rows, values = ops.library().tnt_sparse_sum(
                scale=scale,
                indices=rows,
                values=values,
                communicator=self._communicator.attachment,
                tensor=index,
                rows=shape[0],
            )
        graph_order.done([rows])
        values = tf.reshape(tf.cast(values, dtype), [tf.size(rows), *shape[1:]])
        return tf.IndexedSlices(values, rows, tf.constant(shape, tf.int64))

    def tensor_steps(self, index: int) -> int:
        """How often the variable's gradient was reduced so far."""
        sparse, dense, _ = self.counts(index)
        return sparse + dense

    def counts(self, index: int) -> tuple[int, int, int]:
        """How often the variable's gradient was reduced by rows, how often as a whole, and the bytes this rank gave."""
        return ops.sparse_counts(self._communicator.attachment, index)

    def stats(self) -> dict[str, float]:
        """What was done so far, as `Reducer.stats` has it; the time of these collectives is not measured."""
        total = sum(self.counts(i)[2] for i in range(len(self._tables)))
        return {"steps": 0.0, "bytes": float(total), "busy_seconds": 0.0, "exposed_seconds": 0.0}

    def close(self) -> None:
        """Gives the communicator back."""
        self._communicator.close()
