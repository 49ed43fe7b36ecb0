"""Sparse gradients, such as an embedding's: summed over ranks by their rows, or gathered, without filling the whole table."""

import enum
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.keras import adapter, context
from tarantella.keras.reduction import communicator, device_placement, graph_order, lookups, ops
from tarantella.keras.reduction.reducer import Reducer

# a smaller table is quicker as a dense gradient in a bucket with others than by two collectives of its own
MIN_TABLE_BYTES = 64 * 1024

_UNBOUNDED = 1 << 40  # rows of a table that is never reduced as a whole

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


def warn_of_eager_lookups(grads: Sequence[Any]) -> None:
    """Says once that an eager step whose rows are kept does not show whether it looks up rows once for all samples."""
    if _EAGER in _warned_of:
        return
    eager = [g.indices.numpy() for g in grads if isinstance(g, tf.IndexedSlices) and lookups.operation(g.indices) is None]
    if any(1 < len(rows) == len(np.unique(rows)) for rows in eager):
        _warned_of.add(_EAGER)
        runtime.logger.warning(
            "with run_eagerly=True ranks cannot see whether a layer looks up rows once for all samples of a batch, as a sparse "
            "input and an embedding of positions do, or for each sample, which they assume: Adam and other optimizers that "
            "compute with each row may give slightly other weights than on one device. Leave run_eagerly out"
        )


def _may_repeat(gradient: tf.IndexedSlices) -> bool:
    uses = lookups.uses(gradient.indices)
    return len(uses) > 1 or not lookups.are_distinct(uses[0])


class _Way(enum.Enum):
    """What becomes of the rows of all ranks."""

    ADDED = enum.auto()
    """Those of equal index are added up."""
    KEPT = enum.auto()
    """They follow one another."""
    COMMON = enum.auto()
    """All ranks have the same, and each is added to its like, also where they have an index twice."""


class SparseReducer:
    """Sums the sparse gradients of the same variables over all ranks, again and again. Making one is collective.

    In each step the ranks exchange how many rows of each gradient they have. If it moves fewer bytes, the rows of all ranks are
    gathered and added up in the tree over ranks; else the table is reduced as a whole. Both give the same bits.

    Args:
        keeps_rows: rows are gathered and not added up. Most optimizers of Keras 3 compute with each of a row's occurrences, as
            with the sum of their squares, and the batch of one device has those of all ranks. Rows that the step looks up
            once for all samples are added up all the same: one device has them once.

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
        self._ways = [[_Way.KEPT if keeps_rows else _Way.ADDED] for _ in variables]  # of each collective of a step
        self._keeps_rows = keeps_rows

    def reduce(self, index: int, gradient: tf.IndexedSlices, weight: Any) -> tf.IndexedSlices:
        """The sum over ranks of ``weight * gradient`` of one of the variables.

        Each row is there once, in ascending order; or, if rows are kept, as often as on all ranks, one rank after another. Rows
        that the step looks up once for all samples are there as on one rank. If it looks up some of a table's rows so, and
        others for each sample, those of each use of the table are apart.
        """
        uses = lookups.uses(gradient.indices) if self._keeps_rows else [gradient.indices]
        ways = [self._way_of(use) for use in uses]
        parts = [(gradient.indices, gradient.values)]
        if set(ways) == {_Way.KEPT}:
            ways = ways[:1]
        elif len(uses) > 1:
            sizes = tf.stack([tf.size(use) for use in uses])
            parts = list(zip(tf.split(gradient.indices, sizes), tf.split(gradient.values, sizes), strict=True))
        self._ways[index] = ways
        sums = [self._sum(index, *part, weight, way) for part, way in zip(parts, ways, strict=True)]
        rows, values = sums[0] if len(sums) == 1 else (tf.concat(tensors, 0) for tensors in zip(*sums, strict=True))
        return tf.IndexedSlices(values, rows, tf.constant(self._tables[index][0], tf.int64))

    def _way_of(self, indices: tf.Tensor) -> _Way:
        if not self._keeps_rows or lookups.are_distinct(indices):
            return _Way.ADDED
        # in a loop of one's own a constant may be the data of this rank
        return _Way.COMMON if context.in_model_step() and lookups.are_common(indices) else _Way.KEPT

    def _sum(self, index: int, rows: Any, values: Any, weight: Any, way: _Way) -> tuple[tf.Tensor, tf.Tensor]:
        shape, dtype = self._tables[index]
        wide = dtype if dtype.size >= 4 else tf.float32
        rows = own = tf.reshape(tf.cast(rows, tf.int64), [-1])
        if way is _Way.COMMON:
            rows = tf.range(tf.size(own, tf.int64))
        values = tf.reshape(tf.cast(values, wide), [tf.size(rows), int(np.prod(shape[1:], dtype=np.int64))])
        scale = tf.cast(weight, tf.float64)
        with graph_order.after_last(), device_placement.on_host():
            rows, values = ops.library().tnt_sparse_sum(
                scale=scale,
                indices=rows,
                values=values,
                communicator=communicator.attachment(),
                tensor=self._ids[index],
                rows=_UNBOUNDED if way is _Way.COMMON else shape[0],
                keeps_rows=int(way is _Way.KEPT),
            )
        graph_order.record([rows])
        if way is _Way.COMMON:
            rows = tf.gather(own, rows)
        rows = tf.ensure_shape(rows, [None])  # some optimizers ask for the rank
        return rows, tf.reshape(tf.cast(values, dtype), [tf.size(rows), *shape[1:]])

    def take_part(self) -> None:
        """A step of all its variables, eagerly, in their order, to which this rank gives no row. Collective."""
        for index, (shape, dtype) in enumerate(self._tables):
            for way in self._ways[index]:
                self._sum(index, tf.zeros([0], tf.int64), tf.zeros([0, *shape[1:]], dtype), 0.0, way)

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
