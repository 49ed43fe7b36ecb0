"""Our TensorFlow ops: loading them, the attachments by which they find reducers, their errors, and sums in a tree."""

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tarantella.errors import UnsupportedError, from_message
from tarantella.installation import REMEDY
from tarantella.keras.reduction import device_placement


@functools.cache
def _path() -> Path:
    # imported first, so that the loader finds libtarantella already there
    from tarantella import _native

    return Path(_native.__file__).with_name("libtarantella_tensorflow.so")


@functools.cache
def library() -> Any:
    """The module with `tnt_start` and `tnt_finish`."""
    try:
        return tf.load_op_library(str(_path()))
    except tf.errors.NotFoundError as error:  # the file, or what it needs
        raise UnsupportedError(f"the operations for TensorFlow cannot be loaded: {error.message}: {REMEDY}") from error


@functools.cache
def _attachments() -> ctypes.CDLL:
    library()
    attachments = ctypes.CDLL(str(_path()))
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    for name, result, *arguments in (
        ("attach", number, pointer, ctypes.c_int),
        ("detach", None, number),
        ("attach_communicator", number, pointer),
        ("detach_communicator", None, number),
        ("sparse_counts", None, number, number, ctypes.POINTER(number)),
        ("set_stream_of", None, pointer),
    ):
        function = getattr(attachments, f"tnt_tensorflow_{name}")
        function.restype, function.argtypes = result, arguments
    return attachments


def attach(reducer_address: int, on_gpu: bool) -> int:
    """Registers a reducer with the ops. Returns the id that is their attribute ``reducer``."""
    return int(_attachments().tnt_tensorflow_attach(reducer_address, int(on_gpu)))


def set_stream_of(function: Any) -> None:
    """Sets the C function that tells the CUDA stream on which TensorFlow runs an op (`gpu_stream`)."""
    _attachments().tnt_tensorflow_set_stream_of(ctypes.cast(function, ctypes.c_void_p))


def detach(attachment: int) -> None:
    """Frees the tensors that the reducer held. The reducer must be closed before."""
    _attachments().tnt_tensorflow_detach(attachment)


def attach_communicator(address: int) -> int:
    """Registers a communicator with the blocking ops. Returns the id that is their attribute ``communicator``."""
    return int(_attachments().tnt_tensorflow_attach_communicator(address))


def detach_communicator(attachment: int) -> None:
    """Removes a communicator, before it is freed."""
    _attachments().tnt_tensorflow_detach_communicator(attachment)


def sparse_counts(communicator: int, tensor: int) -> tuple[int, int, int]:
    """A tensor's sparse reductions so far: the number by rows, the number of the whole table, and this rank's bytes."""
    counts = (ctypes.c_int64 * 3)()
    _attachments().tnt_tensorflow_sparse_counts(communicator, tensor, counts)
    return counts[0], counts[1], counts[2]


@contextmanager
def translated_errors(cause: Callable[[], BaseException | None] = lambda: None) -> Iterator[None]:
    """An error that our ops reported to TensorFlow becomes ours again; cause() gives the exception behind it, if known."""
    try:
        yield
    except tf.errors.OpError as error:
        translated = from_message(str(error))
        if translated is None:
            raise
        raise translated from cause()


def tree_add(lists: Sequence[Sequence[tf.Tensor]], weights: Sequence[float | tf.Tensor]) -> list[tf.Tensor]:
    """The sum of ``weight * tensor`` over the lists, for each place in them, in a tree that adds neighbours first.

    Graph or eager, on this rank only. TensorFlow's graph optimizer reorders its own additions if there are more than two; it
    leaves these alone. A reducer with ``tree=True`` gives the same bits if each rank hands over one of the lists with its
    weight, so that shards may be added on one rank or across ranks. Each product is rounded to the tensor's type before it is
    added, denormals are kept, and a weight of 0 contributes zeros whatever its tensors hold.

    Args:
        lists: lists of equal length; tensors of any shape, of float32, float64, float16, bfloat16, int8, uint8, int32 or int64.
            Tensors at the same place have the same dtype and shape; their sum reuses the memory of one that is not used again.
        weights: a scalar for each list, cast to float64. For integers 0 or 1.

    Returns:
        The sums, of the shapes and dtypes of the first list.

    Raises:
        ValueError: the lists are not equally long, or there are not as many weights.
        tf.errors.InternalError: shapes or dtypes differ, a weight is not finite, or it is neither 0 nor 1 and there are
            integers.

    Examples:
        >>> [total] = tree_add([[tf.constant([1.0, 2.0])], [tf.constant([3.0, float("nan")])]], [1.0, 0.0])
        >>> total.numpy()
        array([1., 2.], dtype=float32)
    """
    lengths = [len(tensors) for tensors in lists]
    if len(set(lengths)) > 1:
        raise ValueError(f"tree_add: lists of {' and '.join(map(str, lengths))} tensors cannot be added up")
    if len(weights) != len(lists):
        raise ValueError(f"tree_add: {len(weights)} weights of {len(lists)} lists")
    if not lists or not lists[0]:
        return []
    others = [tensor for tensors in lists[1:] for tensor in tensors]
    with device_placement.on_host():
        list_weights = tf.stack([tf.cast(weight, tf.float64) for weight in weights])
        return list(library().tnt_tree_add(first=lists[0], others=others, weights=list_weights))
