"""The collectives on tensors, with Horovod's arguments and gradients. Ranks compare name, type and shape before each.

The gradient of a collective is the mean over the ranks of what flows back, where Horovod has that (docs/horovod.md).
"""

import enum
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError
from tarantella.horovod.common.process_sets import ProcessSet, global_process_set
from tarantella.horovod.tensorflow import graphs
from tarantella.horovod.tensorflow.compression import Compression
from tarantella.horovod.tensorflow.errors import as_horovod
from tarantella.horovod.tensorflow.negotiation import eager
from tarantella.keras import adapter
from tarantella.keras.reduction import collectives, graph_order, rows

# ------------------------------------------------------------------------------------------------------------- factors

# 16 bits hold few factors: 70000 is infinite in float16, and 1e-9 is zero, so they multiply in float32.


def wide_type(dtype: tf.DType) -> tf.DType:
    """The type in which numbers of this one are multiplied."""
    if not dtype.is_floating:
        return tf.float64
    return dtype if dtype.size >= 4 else tf.float32


def scaled(tensor: Any, factor: float) -> Any:
    """factor * tensor, rounded once to its type; integers lose what is behind the point. None stays None, rows stay rows."""
    if tensor is None or factor == 1.0:
        return tensor
    if isinstance(tensor, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(tensor.values, factor), tensor.indices, tensor.dense_shape)
    wide = wide_type(tensor.dtype)
    return tf.cast(tf.cast(tensor, wide) * tf.cast(factor, wide), tensor.dtype)


def scaled_rows(values: tf.Tensor, factor: float, divisor: int) -> tf.Tensor:
    """factor * values / divisor. Integers become float64: rows of the same index are added up later, and each must count."""
    wide = wide_type(values.dtype)
    result = tf.cast(values, wide) * tf.cast(factor, wide) / tf.cast(divisor, wide)
    return tf.cast(result, values.dtype) if values.dtype.is_floating else result


class ReduceOp(enum.IntEnum):
    """What becomes of the ranks' numbers."""

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average, Sum, Adasum, Min, Max, Product = ReduceOp
_NAMES = {Average: "avg", Sum: "sum", Min: "min", Max: "max", Product: "prod"}


def operation(op: Any, average: bool | None = None) -> ReduceOp:
    """The operation that arguments ask for, `Average` by default.

    Raises:
        ValueError: both were given. UnsupportedError: it is Adasum.
    """
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        op = Average if average else Sum
    chosen = Average if op is None else ReduceOp(op)
    if chosen == Adasum:
        raise UnsupportedError("hvd.Adasum is not offered: use hvd.Average, or hvd.Sum with a smaller learning rate")
    return chosen


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The elementwise reduction over ranks of a tensor, or of the rows of an IndexedSlices, which stay apart.

    Args:
        device_dense, device_sparse: ignored.
        prescale_factor, postscale_factor: factors before and after the reduction.
        name: the same on all ranks. Others: as `tnt.all_reduce`.
    """
    chosen = operation(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_rows(tensor, chosen, prescale_factor * postscale_factor, name, process_set)
    tensor = tf.convert_to_tensor(adapter.unwrap(tensor))
    compressed, ctx = compression.compress(_scaled_before(tensor, prescale_factor, postscale_factor))
    with as_horovod():
        reduced = eager(
            "allreduce", name, compressed, process_set,
            lambda: collectives.all_reduce(compressed, _NAMES[chosen], process_set.group(), name or ""),
        )  # fmt: skip
    return tf.cast(scaled(compression.decompress(reduced, ctx), postscale_factor), tensor.dtype)


def _scaled_before(tensor: tf.Tensor, prescale_factor: float, postscale_factor: float) -> tf.Tensor:
    """What is reduced. Sums of 16 bits that will be scaled are made in 32, so that they are rounded once, after the factor."""
    x = scaled(tensor, prescale_factor)
    return tf.cast(x, wide_type(x.dtype)) if x.dtype.is_floating and postscale_factor != 1.0 else x


def _allreduce_rows(slices: tf.IndexedSlices, op: ReduceOp, factor: float, name: str | None, process_set: ProcessSet) -> Any:
    if op not in (Average, Sum):
        raise NotImplementedError(f"the {op.name} of tf.IndexedSlices: use hvd.Average or hvd.Sum, or sparse_as_dense=True")
    values = allgather(slices.values, name and f"{name}.values", process_set=process_set)
    indices = allgather(slices.indices, name and f"{name}.indices", process_set=process_set)
    if op == Average or factor != 1.0:
        values = scaled_rows(values, factor, process_set.group().size if op == Average else 1)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """`allreduce` of each of the tensors; those of one type travel together."""
    given = [t if isinstance(t, tf.IndexedSlices) else tf.convert_to_tensor(adapter.unwrap(t)) for t in tensors]
    chosen = operation(op, average)

    def reduced(tensor: Any, called: str | None) -> Any:
        return allreduce(
            tensor,
            compression=compression,
            op=chosen,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            name=called,
            process_set=process_set,
        )

    result: list[Any] = [None] * len(given)
    for places in _that_can_be_fused(given):
        parts = [given[i] for i in places]
        flat = tf.concat([tf.reshape(part, [-1]) for part in parts], 0)
        split = tf.split(reduced(flat, _group_name(name, parts)), [part.shape.num_elements() for part in parts])
        for i, tensor in zip(places, split, strict=True):
            result[i] = tf.reshape(tensor, given[i].shape)
    alone = [i for i, tensor in enumerate(result) if tensor is None]
    for i in alone:
        result[i] = reduced(given[i], name and f"{name}.{i}")
    return result


def _that_can_be_fused(tensors: Sequence[Any]) -> list[list[int]]:
    """The positions of tensors of one type, for each type that has several. Their shapes must be known."""
    by_type: dict[tf.DType, list[int]] = {}
    for i, tensor in enumerate(tensors):
        if not isinstance(tensor, tf.IndexedSlices) and tensor.shape.is_fully_defined():
            by_type.setdefault(tensor.dtype, []).append(i)
    return [places for places in by_type.values() if len(places) > 1]


def _group_name(name: str | None, tensors: Sequence[tf.Tensor]) -> str:
    """Ranks compare names, and so the shapes of the single tensors."""
    shapes = zlib.crc32(repr([tensor.shape.as_list() for tensor in tensors]).encode())
    return f"{(name or 'group')[:40]}: {len(tensors)} tensors of shapes with the hash {shapes:08x}"


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def allgather(
    tensor: Any, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet = global_process_set
) -> tf.Tensor:
    """All ranks' rows one after another; each rank may have another number of them."""
    x = rows.as_rows(tensor, "hvd.allgather")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def gather(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        with as_horovod():
            result, numbers = eager(
                "allgather", name, x, process_set, lambda: rows.gathered(x, process_set.group(), name or "")
            )
        rank = process_set.group().rank

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            begin = tf.reduce_sum(numbers[:rank])
            mean = allreduce(upstream, op=Average, process_set=process_set)
            return tf.ensure_shape(mean[begin : begin + numbers[rank]], x.shape)

        return result, gradient

    return gather(x)


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """`allgather` of each of the tensors."""
    return [allgather(tensor, name and f"{name}.{i}", process_set=process_set) for i, tensor in enumerate(tensors)]


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """The tensor of `root_rank`, a rank of the job, on all ranks."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def sent(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        with as_horovod():
            root = process_set.group().to_group_rank(int(root_rank))
            result = eager(
                "broadcast", name, x, process_set, lambda: collectives.broadcast(x, root, process_set.group(), name or "")
            )

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            mean = allreduce(upstream, op=Average, process_set=process_set)
            if process_set.group().rank == root:
                return mean
            with tf.control_dependencies([mean]):  # all ranks make the sum, also in a graph that runs what it needs alone
                return tf.zeros(tf.shape(x), x.dtype)

        return result, gradient

    return sent(tf.convert_to_tensor(adapter.unwrap(tensor)))


def broadcast_(
    variables: Sequence[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gives variables the values of `root_rank`. Returns them; in a graph of TensorFlow 1, what a session must run for it."""
    assigned = []
    with graph_order.apart() if graphs.in_graph() else nullcontext():
        for i, variable in enumerate(variables):
            inner = adapter.unwrap(variable)
            value = broadcast(inner.read_value(), root_rank, name and f"{name}.{i}", process_set=process_set)
            assigned.append(inner.assign(value))
    return assigned if graphs.in_graph() else list(variables)


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows to each rank. Returns those that came, and with `splits` also how many came from each rank."""
    x = rows.as_rows(tensor, "hvd.alltoall")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def exchange(x: tf.Tensor) -> tuple[Any, Callable[..., tf.Tensor]]:
        with as_horovod():
            result, received = eager(
                "alltoall", name, x, process_set, lambda: rows.exchanged(x, splits, process_set.group(), name or "")
            )

        def gradient(upstream: tf.Tensor, _received_upstream: Any = None) -> tf.Tensor:
            with as_horovod():
                grads = tf.convert_to_tensor(upstream)
                back, _ = eager(
                    "alltoall", None, grads, process_set, lambda: rows.exchanged(grads, received, process_set.group())
                )
            return tf.ensure_shape(back, x.shape)

        return (result, received), gradient

    result, received = exchange(x)
    return result if splits is None else (result, tf.cast(received, tf.int32))


@tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """This rank's rows of the reduction. The first ranks get one more if the rows cannot be shared evenly."""
    chosen = operation(op)
    if chosen not in (Average, Sum):
        raise NotImplementedError(f"hvd.reducescatter with op {chosen.name}: use hvd.Average or hvd.Sum")
    x = rows.as_rows(tensor, "hvd.reducescatter")
    compressed, ctx = compression.compress(_scaled_before(x, prescale_factor, postscale_factor))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scatter(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            gathered = allgather(tf.convert_to_tensor(upstream), process_set=process_set)
            return tf.ensure_shape(scaled(gathered, process_set.group().size if chosen == Sum else 1.0), x.shape)

        with as_horovod():
            result, _ = eager(
                "reducescatter", name, x, process_set,
                lambda: rows.scattered(x, _NAMES[chosen], process_set.group(), name or ""),
            )  # fmt: skip
            return result, gradient

    return tf.cast(scaled(compression.decompress(scatter(compressed), ctx), postscale_factor), x.dtype)


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """`reducescatter` of each of the tensors."""
    same = {"compression": compression, "op": op, "process_set": process_set}
    factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
    return [reducescatter(tensor, name=name and f"{name}.{i}", **same, **factors) for i, tensor in enumerate(tensors)]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns after all ranks have called it."""
    with as_horovod():
        process_set.group().communicator().barrier()
