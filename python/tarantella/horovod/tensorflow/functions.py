"""Variables from one rank to all, and the place of this rank as tensors."""

from typing import Any

import tensorflow as tf

from tarantella import runtime
from tarantella.horovod.common.process_sets import ProcessSet, by_id, global_process_set
from tarantella.horovod.tensorflow import collectives, graphs
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.keras.reduction.collectives import broadcast_variables as broadcast_to_all


def broadcast_variables(variables: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> Any:
    """Gives variables the values that they have on `root_rank`. In a graph of TensorFlow 1: returns the operation for it."""
    if graphs.in_graph():
        return tf.group(*collectives.broadcast_(tf.nest.flatten(variables), root_rank, process_set=process_set))
    if process_set is not global_process_set:
        collectives.broadcast_(tf.nest.flatten(variables), root_rank, process_set=process_set)
        return None
    with as_horovod():
        broadcast_to_all(list(variables), root_rank)
    return None


def broadcast_global_variables(root_rank: int) -> Any:
    """For graphs of TensorFlow 1: the operation that gives all variables of the graph the values of `root_rank`.

    Raises:
        RuntimeError: TensorFlow 2 has no list of all variables.
    """
    if graphs.in_graph():
        return broadcast_variables(tf.compat.v1.global_variables(), root_rank)
    raise RuntimeError(
        "hvd.broadcast_global_variables: TensorFlow 2 has no list of all: use hvd.broadcast_variables(model.variables)"
    )


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """For sessions of TensorFlow 1: gives all ranks the variables of `root_rank` when the session begins.

    Args:
        device: ignored.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op: Any = None

    def begin(self) -> None:
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self.bcast_op)


def rank_op(name: str | None = None) -> tf.Tensor:
    """The rank, as a tensor."""
    return tf.constant(runtime.get_rank(), tf.int32)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Whether this rank is in a process set, as a tensor: 1, or 0. Raises ValueError if there is no such process set."""
    return tf.constant(int(by_id(process_set_id).group().contains_global_rank(runtime.get_rank())), tf.int32)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks of a process set, as a tensor."""
    return tf.constant(by_id(process_set_id).group().size, tf.int32)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """The local rank, as a tensor."""
    return tf.constant(runtime.get_local_rank(), tf.int32)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """The local size, as a tensor."""
    return tf.constant(runtime.get_local_size(), tf.int32)
