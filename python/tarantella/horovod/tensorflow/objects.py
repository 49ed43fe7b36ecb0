"""Objects of a script from one rank to all, and from all to all."""

from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tarantella import runtime
from tarantella._native import Dtype
from tarantella.errors import UnsupportedError
from tarantella.horovod.common import encoding
from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow import collectives, graphs
from tarantella.horovod.tensorflow.errors import as_horovod


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The object of `root_rank`, on all ranks: numbers, texts, NumPy arrays, and lists, tuples and dicts of them.

    Others are refused unless TNT_HOROVOD_PICKLE=1, which sends them as pickles: what is sent could run code.

    Args:
        session: ignored: the object travels at once, also while a graph of TensorFlow 1 is built.
    """
    _refuse_in_function("hvd.broadcast_object")
    is_root = runtime.get_rank() == root_rank
    sent, failure = encoding.encode(obj) if is_root else (b"", None)
    called = name or "object"
    (size,) = _broadcast(np.array([len(sent)], np.int64), root_rank, f"{called}.size", process_set)
    data = np.frombuffer(sent, np.uint8) if is_root else np.zeros(int(size), np.uint8)
    received = _broadcast(data, root_rank, called, process_set)
    if failure is not None:
        raise failure
    return obj if is_root else encoding.decode(received.tobytes(), f"rank {root_rank}")


def allgather_object(
    obj: Any, session: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks, in the order of ranks. As `broadcast_object`."""
    _refuse_in_function("hvd.allgather_object")
    sent, failure = encoding.encode(obj)
    called = name or "objects"
    sizes = _gather(np.array([len(sent)], np.int64), [1] * process_set.group().size, f"{called}.size", process_set)
    together = _gather(np.frombuffer(sent, np.uint8), sizes.tolist(), called, process_set).tobytes()
    if failure is not None:
        raise failure
    ends = np.cumsum(sizes)
    parts = [together[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return [encoding.decode(part, f"rank {rank}") for rank, part in zip(process_set.ranks or (), parts, strict=True)]


def _refuse_in_function(what: str) -> None:
    if not tf.executing_eagerly() and not graphs.in_graph():
        raise UnsupportedError(f"{what} inside a tf.function would run once, when it is traced: call it outside")


def _broadcast(data: NDArray[Any], root_rank: int, name: str, process_set: ProcessSet) -> NDArray[Any]:
    """Root's array. Where TensorFlow builds a graph, without it."""
    if not graphs.in_graph():
        sent: NDArray[Any] = collectives.broadcast(tf.constant(data), root_rank, name, process_set=process_set).numpy()
        return sent
    result: NDArray[Any] = data.copy()
    with as_horovod():
        group = process_set.group()
        group.communicator().broadcast(result.view(np.uint8), Dtype.uint8, group.to_group_rank(root_rank))
    return result


def _gather(data: NDArray[Any], sizes: list[int], name: str, process_set: ProcessSet) -> NDArray[Any]:
    """The ranks' arrays one after another. Where TensorFlow builds a graph, without it.

    sizes: the lengths of the ranks' arrays.
    """
    if not graphs.in_graph():
        gathered: NDArray[Any] = collectives.allgather(tf.constant(data), name, process_set=process_set).numpy()
        return gathered
    padded = np.zeros(max(sizes), data.dtype)
    padded[: len(data)] = data
    everything = np.zeros((len(sizes), len(padded)), data.dtype)
    with as_horovod():
        process_set.group().communicator().all_gather(padded.view(np.uint8), everything.reshape(-1).view(np.uint8), Dtype.uint8)
    return np.concatenate([row[:size] for row, size in zip(everything, sizes, strict=True)])
