"""Sparse gradients, such as an embedding's: summed over ranks by their rows, or gathered, without filling the whole table."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter
from tarantella.keras.reduction import communicator, device_placement, graph_order, ops
from tarantella.keras.reduction.reducer import Reducer

# a smaller table is quicker as a dense gradient in a bucket with others than by two collectives of its own
MIN_TABLE_BYTES = 64 * 1024

_SAME_ROWS = {"Cast", "ExpandDims", "Identity", "Reshape", "Squeeze"}  # operations that keep indices apart which are so
# operations and which of their results is distinct indices; the gradients are of `tf.nn.embedding_lookup_sparse`, too
_DISTINCT = {"Unique": 0, "UniqueV2": 0, "UniqueWithCounts": 0, "UniqueWithCountsV2": 0}
_DISTINCT |= {f"SparseSegment{kind}GradV2": 1 for kind in ("Sum", "Mean", "SqrtN")}

_EAGER = "an eager step"
_warned_of: set[str] = set()  # classes of optimizers, and `_EAGER`
_ids = itertools.count()  # of tables: the ops count reductions under them


def is_reduced_by_rows(gradient: Any, variable: Any, keeps_rows: bool = False) -> bool:
    """Whether the gradient is reduced by rows. All ranks decide alike: by the kind of gradient and by the variable."""
    if not isinstance(gradient, tf.IndexedSlices) or not tf.as_dtype(adapter.dtype_of(variable)).is_floating:
        return False
    return keeps_rows or bool(np.prod(variable.shape) * tf.as_dtype(adapter.dtype_of(variable)).size >= MIN_TABLE_BYTES)


def warn_of_repeated_rows(model: Any, grads: Sequence[Any], where: str) -> None:
    """Says once for each kind of optimizer that its result with summed sparse gradients is not that of one device."""
    if not any(isinstance(gradient, tf.IndexedSlices) and _may_repeat(gradient) for gradient in grads):
        return
    for optimizer in adapter.held_optimizers(model):
        name = type(adapter.optimizers_of(optimizer)[-1]).__name__
        if name not in _warned_of and adapter.repeated_rows_matter(optimizer):
            _warned_of.add(name)
            runtime.logger.warning(
                "%s and rows of an Embedding that occur several times in a batch: %s adds up their gradients first, as those "
                "of a dense gradient. On one device Keras 3 applies them one after the other, so its results differ slightly",
                name,
                where,
            )


def warn_of_eager_lookups(grads: Sequence[Any], datasets: Sequence[tf.data.Dataset]) -> None:
    """Says once that an eager step with sparse data, whose rows are kept, does not show whether it looks up each row once."""
    specs = tf.nest.flatten([dataset.element_spec for dataset in datasets])
    is_sparse = any(isinstance(spec, tf.SparseTensorSpec) for spec in specs)
    is_eager = any(isinstance(g, tf.IndexedSlices) and _operation(g.indices) is None for g in grads)
    if is_sparse and is_eager and _EAGER not in _warned_of:
        _warned_of.add(_EAGER)
        runtime.logger.warning(
            "the data has sparse tensors, and with run_eagerly=True ranks cannot see whether a layer looks up each row once "
            "in a batch, as Keras does for a sparse input, or once for each sample, which they assume: Adam and other "
            "optimizers that compute with each row may give slightly other weights than on one device. Leave run_eagerly out"
        )


def _uses(indices: tf.Tensor) -> list[tf.Tensor]:
    """The indices of each use of a table: TensorFlow joins those of several uses."""
    op = _operation(indices)
    return [indices] if op is None or op.type != "ConcatV2" else list(op.inputs)[:-1]


def _are_distinct(indices: tf.Tensor) -> bool:
    """Whether the step looked up each row once, however often the batch has it, as `tf.nn.embedding_lookup_sparse` does.

    The graph tells, not the values: rows that are distinct by chance on this rank may be repeated in the whole batch.
    """
    op = _operation(indices)
    while op is not None and op.type in _SAME_ROWS:
        indices = op.inputs[0]
        op = _operation(indices)
    return op is not None and _DISTINCT.get(op.type) == indices.value_index


def _operation(tensor: tf.Tensor) -> Any:
    """What a graph's tensor was computed by. None if it was computed eagerly."""
    return getattr(tensor, "op", None)


def _may_repeat(gradient: tf.IndexedSlices) -> bool:
    uses = _uses(gradient.indices)
    return len(uses) > 1 or not _are_distinct(uses[0])


class SparseReducer:
    """Sums the sparse gradients of the same variables over all ranks, again and again. Making one is collective.

    In each step the ranks exchange how many rows of each gradient they have. If it moves fewer bytes, the rows of all ranks are
    gathered and added up in the tree over ranks; else the table is reduced as a whole. Both give the same bits.

    Args:
        keeps_rows: rows are gathered and not added up. Most optimizers of Keras 3 compute with each of a row's occurrences, as
            with the sum of their squares, and the batch of one device has those of all ranks. Rows that the step looked up
            once each, as with a sparse input, are added up: on one device each would be there once.

    Raises:
        MismatchError: a rank has other variables.
    """

    name = "gradients"

    def __init__(
        self,
        variables: Sequence[Any],
        context: str = "",
        label: Callable[[Any], str] = adapter.path,
        keeps_rows: bool = False,
    ) -> None:
        tables = [f"{label(v)} {tuple(v.shape)} {adapter.dtype_of(v)}" for v in variables]
        # compares the tables of all ranks
        Reducer("sparse gradients", [], f"{context} with sparse gradients of {', '.join(tables)}").close()
        # does not keep the variables alive
        self._tables = [(tuple(v.shape), tf.as_dtype(adapter.dtype_of(v))) for v in variables]
        self._ids = [next(_ids) for _ in variables]
        self._kept = [[keeps_rows] for _ in variables]  # whether rows are kept, in each collective of a step
        self._keeps_rows = keeps_rows

    def reduce(self, index: int, gradient: tf.IndexedSlices, weight: Any) -> tf.IndexedSlices:
        """The sum over ranks of ``weight * gradient`` of one of the variables.

        Each row is there once, in ascending order; or, if rows are kept, as often as on all ranks, one rank after another. Of a
        table that the step uses several times, those of each use that looks up a row once are apart.
        """
        uses = _uses(gradient.indices) if self._keeps_rows else []
        kept = [not _are_distinct(use) for use in uses]
        if len(uses) < 2 or all(kept):
            parts, kept = [(gradient.indices, gradient.values)], [self._keeps_rows and kept[0]]
        else:
            sizes = tf.stack([tf.size(use) for use in uses])
            parts = list(zip(tf.split(gradient.indices, sizes), tf.split(gradient.values, sizes), strict=True))
        self._kept[index] = kept
        sums = [self._sum(index, *part, weight, keeps_rows) for part, keeps_rows in zip(parts, kept, strict=True)]
        rows, values = sums[0] if len(sums) == 1 else (tf.concat(tensors, 0) for tensors in zip(*sums, strict=True))
        return tf.IndexedSlices(values, rows, tf.constant(self._tables[index][0], tf.int64))

    def _sum(self, index: int, rows: Any, values: Any, weight: Any, keeps_rows: bool) -> tuple[tf.Tensor, tf.Tensor]:
        shape, dtype = self._tables[index]
        wide = dtype if dtype.size >= 4 else tf.float32
        rows = tf.reshape(tf.cast(rows, tf.int64), [-1])
        values = tf.reshape(tf.cast(values, wide), [tf.size(rows), int(np.prod(shape[1:], dtype=np.int64))])
        scale = tf.cast(weight, tf.float64)
        with graph_order.after_last(), device_placement.on_host():
            rows, values = ops.library().tnt_sparse_sum(
                scale=scale,
                indices=rows,
                values=values,
                communicator=communicator.attachment(),
                tensor=self._ids[index],
                rows=shape[0],
                keeps_rows=int(keeps_rows),
            )
        graph_order.record([rows])
        rows = tf.ensure_shape(rows, [None])  # some optimizers ask for the rank
        return rows, tf.reshape(tf.cast(values, dtype), [tf.size(rows), *shape[1:]])

    def take_part(self) -> None:
        """A step of all its variables, eagerly, in their order, to which this rank gives no row. Collective."""
        for index, (shape, dtype) in enumerate(self._tables):
            for keeps_rows in self._kept[index]:
                self._sum(index, tf.zeros([0], tf.int64), tf.zeros([0, *shape[1:]], dtype), 0.0, keeps_rows)

    def tensor_steps(self, index: int) -> int:
        """How often the variable's gradient was reduced so far."""
        sparse, dense, _ = self.counts(index)
        return sparse + dense

    def counts(self, index: int) -> tuple[int, int, int]:
        """How often the variable's gradient was reduced by rows, how often as a whole, and the bytes this rank gave.

        Uses of the variable that are reduced apart count each.
        """
        return ops.sparse_counts(communicator.attachment(), self._ids[index])

    def stats(self) -> dict[str, float]:
        """Totals so far, as in `Reducer.stats`; the time of these collectives is not measured."""
        total = sum(self.counts(i)[2] for i in range(len(self._tables)))
        return {"steps": 0.0, "bytes": float(total), "busy_seconds": 0.0, "exposed_seconds": 0.0}
