"""Which trained variables of its stages a rank updates: all of them, or with `shard_optimizer` those that its replica owns.

Replicas of a pipeline have the same weights. With `shard_optimizer` each variable is updated by one replica, whose rank alone
has its state in the optimizer and sends the new weight to the ranks with the same stages.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.collectives.group import Group
from tarantella.keras import adapter
from tarantella.keras.pipeline.crossings import Kind
from tarantella.keras.pipeline.cut import Cut
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.keras.reduction import collectives, rows
from tarantella.keras.sharding.weights import WeightGather, bytes_of, elements_of, owners_of
from tarantella.pipeline_schedule import Schedule


class Updates:
    """The variables that a rank updates, and their gradients and new values.

    Args:
        variables: the trained variables of this rank's stages, in the order of the model: the same in each replica.
        is_sharded: whether each is updated by one replica.

    Attributes:
        trained: those that this rank updates. Where there are fewer variables than replicas, a replica that owns none updates
            the smallest one, too.
        ranks: those whose optimizers have the states of all variables.
    """

    def __init__(self, variables: Sequence[Any], replicas: Replicas, is_sharded: bool) -> None:
        self._replicas = replicas
        self._is_sharded = is_sharded and replicas.count > 1
        self.trained = list(variables)
        self.ranks = range(replicas.ranks)
        if self._is_sharded:
            owners = owners_of([bytes_of(v) for v in variables], replicas.count)
            self._owner_of = {id(v): owner for v, owner in zip(variables, owners, strict=True)}
            self._group = Group(replicas.with_position(replicas.position))
            self._gather = WeightGather(variables, owners, self._group)
            by_replica = [[v for v in variables if self._owner_of[id(v)] == owner] for owner in range(replicas.count)]
            self._replica_variables = [owned or [min(variables, key=bytes_of)] for owned in by_replica]
            self.trained = self._replica_variables[self._group.rank]
            self.ranks = range(runtime.get_size())

    def owns(self, variable: Any) -> bool:
        """Whether no other replica updates this variable of the rank's stages, or all of them do."""
        return not self._is_sharded or self._owner_of[id(variable)] == self._group.rank

    @property
    def group_of_norm(self) -> Group:
        """The ranks that together update each variable of the model."""
        first = self._replicas.first_rank
        return Group() if self._is_sharded else Group(range(first, first + self._replicas.ranks))

    def sums(self, variables: Sequence[Any], tensors: Sequence[tf.Tensor]) -> dict[int, tf.Tensor]:
        """The gradients of the variables that this rank updates, summed over replicas, by the variables' ids.

        Collective on the ranks with the same stages.

        Args:
            variables: of one stage.
            tensors: their gradients on this replica.
        """
        if not self._is_sharded:
            return {id(v): t for v, t in zip(variables, self._replicas.sums(tensors), strict=True)}
        found: dict[int, tf.Tensor] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            found.update(
                self._scattered({id(v): t for v, t in zip(variables, tensors, strict=True) if t.dtype == dtype}, dtype)
            )
        return found

    def _scattered(self, tensors: dict[int, tf.Tensor], dtype: tf.DType) -> dict[int, tf.Tensor]:
        """Each replica gets the sums for the variables that it updates: a row of a matrix, as long as the longest."""
        parts = [[v for v in updated if id(v) in tensors] for updated in self._replica_variables]
        length = max(sum(map(elements_of, part)) for part in parts)
        matrix = tf.stack([_row([tensors[id(v)] for v in part], length, dtype) for part in parts])
        own, _ = rows.scattered(matrix, "sum", self._group, name="gradients of replicas")
        mine = parts[self._group.rank]
        sizes = [elements_of(v) for v in mine]
        flat = tf.split(tf.reshape(own, [-1]), [*sizes, length - sum(sizes)])[:-1]
        return {id(v): tf.reshape(one, v.shape) for v, one in zip(mine, flat, strict=True)}

    def share(self) -> None:
        """Gives the ranks with the same stages the new weights. Collective on these ranks."""
        if self._is_sharded:
            self._gather.gather()


def _row(tensors: Sequence[tf.Tensor], length: int, dtype: tf.DType) -> tf.Tensor:
    """The elements of the tensors, with zeros at the end."""
    flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0) if tensors else tf.zeros([0], dtype)
    return tf.pad(flat, [[0, length - tf.size(flat)]])


# --------------------------------------------------------------------------------------------------------------------- clipping

# `global_clipnorm` of an optimizer: the norm of all stages' gradients, of which each rank has its own.


def clipped_by_global_norm(norm: float, grads: Sequence[Any], updates: Updates, trained_variables: Sequence[Any]) -> list[Any]:
    """This rank's gradients, scaled so that the norm of all stages' gradients is at most `norm`.

    Collective on the ranks that together update each variable once.

    The squares are added up as Keras does it on one device: for each variable alone, then in the order of the model, without
    the variables that have no gradient. So the bits are the same.

    Args:
        grads: of the variables that this rank updates; None where there is none.
        trained_variables: all of them, of all stages.
    """
    ops = adapter.keras.ops
    own = {id(v): g for v, g in zip(updates.trained, grads, strict=True) if g is not None and updates.owns(v)}
    zero = tf.constant(0.0, tf.float64)
    squares = [tf.cast(ops.sum(ops.square(own[id(v)])), tf.float64) if id(v) in own else zero for v in trained_variables]
    has_gradient = [tf.constant(float(id(v) in own), tf.float64) for v in trained_variables]
    table = collectives.all_reduce(tf.stack([tf.stack(squares), tf.stack(has_gradient)]), "sum", updates.group_of_norm)
    dtype = adapter.keras.backend.result_type(*[adapter.dtype_of(v) for v in trained_variables])
    found = ops.sqrt(ops.sum(tf.cast(tf.boolean_mask(table[0], table[1] > 0), dtype)))
    scale = norm * ops.minimum(1.0 / found, 1.0 / norm) + (found - found)  # NaN if the norm is not finite, as in Keras
    return [None if g is None else g * tf.cast(scale, g.dtype) for g in grads]


@contextmanager
def already_clipped(optimizer: Any) -> Iterator[None]:
    """The optimizer does not clip by a global norm in this context."""
    kept, optimizer.global_clipnorm = optimizer.global_clipnorm, None
    try:
        yield
    finally:
        optimizer.global_clipnorm = kept


# -------------------------------------------------------------------------------------------------- variables of several stages

# The first of the stages that use a trained variable, such as an embedding that also makes the output, updates it from the sum
# of all gradients, and the others get its new value.


def send_new_values(variables: Sequence[Any], cut: Cut, schedule: Schedule, replicas: Replicas) -> None:
    """Gives the ranks that share a variable its value from the rank that has updated it. Collective on these ranks.

    Args:
        variables: of the model.
    """
    by_id = {id(v): v for v in variables}
    for crossing in cut.crossings_of_kind(Kind.VARIABLE):
        positions = list(dict.fromkeys(schedule.rank_of(stage) for stage in crossing.stages))  # that of the owner first
        if len(positions) == 1 or replicas.position not in positions:
            continue
        inner = adapter.unwrap(by_id[crossing.key])
        group = Group(sorted(replicas.first_rank + position for position in positions))
        root = sorted(positions).index(positions[0])
        inner.assign(collectives.broadcast(tf.identity(inner.read_value()), root, group))
