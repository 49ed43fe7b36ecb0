"""Variables and objects from one rank to all."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import runtime
from tarantella.horovod.common import encoding
from tarantella.horovod.common.process_sets import ProcessSet, by_id, global_process_set
from tarantella.horovod.tensorflow import collectives
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.keras.reduction.collectives import broadcast_variables as broadcast_to_all


def broadcast_variables(variables: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Gives variables the values that they have on `root_rank`."""
    if process_set is not global_process_set:
        collectives.broadcast_(tf.nest.flatten(variables), root_rank, process_set=process_set)
        return
    with as_horovod():
        broadcast_to_all(list(variables), root_rank)


def broadcast_global_variables(root_rank: int) -> None:
    """Refuses: the variables of a graph of TensorFlow 1 are no collection of TensorFlow 2."""
    raise RuntimeError(
        "hvd.broadcast_global_variables: TensorFlow 2 has no list of all: use hvd.broadcast_variables(model.variables)"
    )


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank`, on all ranks: numbers, texts, NumPy arrays, and lists, tuples and dicts of them.

    Others are refused unless TNT_HOROVOD_PICKLE=1, which sends them as pickles: what is sent could run code.
    """
    is_root = runtime.get_rank() == root_rank
    sent, failure = encoding.encode(obj) if is_root else (b"", None)
    called = name or "object"
    size = collectives.broadcast(tf.constant(len(sent), tf.int64), root_rank, f"{called}.size", process_set=process_set)
    data = np.frombuffer(sent, np.uint8) if is_root else np.zeros(int(size), np.uint8)
    received = collectives.broadcast(tf.constant(data, tf.uint8), root_rank, called, process_set=process_set)
    if failure is not None:
        raise failure
    return obj if is_root else encoding.decode(received.numpy().tobytes(), f"rank {root_rank}")


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks. As `broadcast_object`."""
    sent, failure = encoding.encode(obj)
    called = name or "objects"
    sizes = collectives.allgather(tf.constant([len(sent)], tf.int64), f"{called}.size", process_set=process_set).numpy()
    data = tf.constant(np.frombuffer(sent, np.uint8), tf.uint8)
    together = collectives.allgather(data, called, process_set=process_set).numpy().tobytes()
    if failure is not None:
        raise failure
    ends = np.cumsum(sizes)
    parts = [together[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return [encoding.decode(part, f"rank {rank}") for rank, part in enumerate(parts)]


def rank_op(name: str | None = None) -> tf.Tensor:
    """The rank, as a tensor."""
    return tf.constant(runtime.get_rank(), tf.int32)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """The number of ranks of a process set, as a tensor."""
    return tf.constant(by_id(process_set_id).size(), tf.int32)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """The local rank, as a tensor."""
    return tf.constant(runtime.get_local_rank(), tf.int32)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """The local size, as a tensor."""
    return tf.constant(runtime.get_local_size(), tf.int32)
