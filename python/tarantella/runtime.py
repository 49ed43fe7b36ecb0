"""This process as a rank: joining and leaving the job, and the collectives on NumPy arrays.

The process joins at the first call that needs to know where it stands. Without the environment of our launcher, mpirun or
srun the job is this process alone: everything works, on one rank.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella.collectives.arrays import as_array, is_tensor
from tarantella.environment import (
    autotune,
    in_job,
    log_level,
    log_on_all_devices,
    output_on_all_devices,
    tensorboard_on_all_devices,
)
from tarantella.errors import MismatchError, TarantellaError, from_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tarantella import _native

logger = logging.getLogger("TNT_LIB")

# tnt_dtype_t and tnt_op_t of tarantella.h
_DTYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "bfloat16": 3,
    "int8": 4,
    "uint8": 5,
    "int32": 6,
    "int64": 7,
}
_OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "prod": 4}

_world: _native.Communicator | None = None
_at_exit: list[Callable[[], None]] = []


def world() -> _native.Communicator:
    """The communicator of all ranks; joins the job if that has not happened yet."""
    global _world
    if _world is None:
        from tarantella import _native

        if in_job():
            _report_uncaught_exceptions()
        # nonsense in the environment is refused here, not in the middle of a fit
        output_on_all_devices(), tensorboard_on_all_devices(), autotune()
        _native.init()
        _world = _native.Communicator.world()
        _configure_logging(_world.rank)
        atexit.register(_leave, os.getpid())
    return _world


def before_leaving(action: Callable[[], None]) -> None:
    """Runs the action before this process leaves the job; for what must be gone by then."""
    _at_exit.append(action)


def _leave(pid: int) -> None:
    if os.getpid() != pid:  # a fork of the rank is not the rank
        return
    from tarantella import _native

    for action in reversed(_at_exit):
        action()
    try:
        _native.finalize()
    except TarantellaError as error:
        print(f"tarantella: {error}", file=sys.stderr)


def _configure_logging(rank: int) -> None:
    logger.setLevel(log_level())
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(f"tarantella[{rank}]: %(levelname)s: %(message)s"))
        if rank != 0 and not log_on_all_devices():
            handler.setLevel(logging.CRITICAL + 1)
        logger.addHandler(handler)
        logger.propagate = False


def _report_uncaught_exceptions() -> None:
    """An exception that ends this rank's script ends the job: the others learn of it in what they wait in."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        previous(kind, value, traceback)
        text = f"{kind.__name__}: {value}".strip()
        ours = isinstance(value, TarantellaError) or from_message(text) is not None  # out of a graph: in TensorFlow's words
        _tell_launcher("secondary" if ours else "primary", text)
        if _world is not None:
            _world.abort(f"the script ended with {text}")

    sys.excepthook = hook


def _tell_launcher(kind: str, message: str) -> None:
    descriptor = os.environ.get("TNT_REPORT_FD", "")
    if not descriptor.isdigit():
        return
    try:
        os.write(int(descriptor), (json.dumps({"kind": kind, "message": message[:1500]}) + "\n").encode())
    except OSError as error:
        print(f"tarantella: cannot tell the launcher of the failure: {error}", file=sys.stderr)


# ------------------------------------------------------------------------------------------------ where we stand


def get_rank() -> int:
    """This process among all of the job, from 0."""
    return world().rank


def get_size() -> int:
    """How many ranks the job has; 1 without a launcher."""
    return world().size


def get_local_rank() -> int:
    """This process among the job's on this machine, from 0."""
    return world().local_rank


def get_local_size() -> int:
    """How many ranks of the job run on this machine."""
    return world().local_size


def get_master_rank() -> int:
    """The rank that writes files and shows progress: 0."""
    return 0


def is_master_rank() -> bool:
    """Whether this process is the one that writes files and shows progress.

    Example:
        >>> if tnt.is_master_rank():
        ...     print("only once, however many ranks there are")
    """
    return get_rank() == get_master_rank()


# --------------------------------------------------------------------------------------------------- collectives


def barrier() -> None:
    """Returns after all ranks have called it."""
    world().barrier()


def _wire(array: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The array as the extension takes it, and its element type's number."""
    name = array.dtype.name
    if name not in _DTYPES:
        raise TypeError(f"cannot reduce elements of type {name}: use one of {', '.join(_DTYPES)}")
    return (array.view(np.uint16) if name == "bfloat16" else array), _DTYPES[name]


def all_reduce(x: ArrayLike | Any, op: str = "sum", out: NDArray[Any] | None = None) -> Any:
    """The elementwise reduction over all ranks, on every rank. Collective.

    Args:
        x: array, list, number, or a tensor or variable of TensorFlow or Keras; same shape and dtype on all ranks
            (float16/32/64, bfloat16, int8/32/64, uint8). Contiguous arrays of NumPy, and of others that have DLPack, are
            read where they lie, without a copy.
        op: ``"sum"``, ``"avg"``, ``"min"``, ``"max"`` or ``"prod"``. Sums are taken in rank order: the same bits always.
        out: a contiguous NumPy array of x's shape and dtype to write the result to, x itself for in place; not for tensors.

    Returns:
        out, or a new array of x's shape and dtype. Of a tensor or variable: a tensor, also inside a `tf.function`; sums and
        averages have gradients, which are reduced likewise.

    Raises:
        MismatchError: ranks called different things. PeerLostError, DeadlineError: a rank is missing.

    Example:
        >>> tnt.all_reduce([tnt.get_rank() + 1.0])   # on 2 ranks
        array([3.])
    """
    if op not in _OPS:
        raise ValueError(f"op is {op!r}: use one of {', '.join(_OPS)}")
    if is_tensor(x):
        if out is not None:
            raise TypeError("out is for arrays: a tensor's reduction is a new tensor")
        from tarantella.keras.reduction import collectives

        return collectives.all_reduce(x, op)
    given = as_array(x)
    source = np.ascontiguousarray(given)
    source = source.astype(source.dtype.newbyteorder("="), copy=False)
    result = np.empty_like(source) if out is None else _room(out, given)
    if out is not None and out.ctypes.data != source.ctypes.data and np.may_share_memory(out, source):
        source = source.copy()  # they overlap: in place is for one and the same
    wire_in, dtype = _wire(source)
    wire_out, _ = _wire(result)
    world().all_reduce(wire_in, wire_out, dtype, _OPS[op])
    return result.reshape(given.shape) if out is None else out


def _room(out: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """out, if what is like given can be written there; of no dimension as one of one."""
    fits = out.shape == given.shape and out.dtype == given.dtype and out.dtype.isnative
    if not (fits and out.flags.c_contiguous and out.flags.writeable):
        raise ValueError(f"out must be a writable contiguous array of shape {given.shape} and type {given.dtype}, not of shape "
                         f"{out.shape} and type {out.dtype}")  # fmt: skip
    return out.reshape(-1)


def all_reduce_each(arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The sum over ranks of each array, with one collective for each element type. Collective."""
    from tarantella.collectives.fused import FusedSum
    from tarantella.collectives.group import Group

    return FusedSum(Group(), arrays).wait()


def all_gather(x: ArrayLike) -> NDArray[Any]:
    """All ranks' arrays, stacked along a new first axis, on every rank. Collective.

    Args:
        x: same shape and dtype on all ranks, any dtype of fixed size.

    Returns:
        Array of shape ``(size, *x.shape)``; ``result[r]`` is rank r's.
    """
    given = as_array(x)
    source = np.ascontiguousarray(given)
    result = np.empty((world().size, *given.shape), source.dtype)
    world().all_gather(_bytes_of(source), _bytes_of(result), _DTYPES["uint8"])
    return result


def broadcast(x: ArrayLike, root: int = 0) -> NDArray[Any]:
    """Root's array, on every rank. Collective.

    Args:
        x: same shape and dtype on all ranks, any dtype of fixed size; the values of ranks other than root do not matter.
        root: the rank whose values are taken.
    """
    result = np.array(as_array(x), copy=True, order="C")
    world().broadcast(_bytes_of(result), _DTYPES["uint8"], root)
    return result


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    if array.dtype.hasobject:
        raise TypeError("cannot send Python objects: use an array of numbers")
    return array.reshape(-1).view(np.uint8)


def require_same(what: str, **values: int | None) -> None:
    """Compares numbers that must be the same on all ranks. Collective.

    Args:
        what: begins the sentence of the error, such as ``"fit"``.
        values: by name; None where there is none.

    Raises:
        MismatchError: on all ranks; names the first that differs and the ranks.
    """
    own = np.array([-(1 << 62) if value is None else value for value in values.values()], np.int64)
    on_ranks = all_gather(own)
    for rank, others in enumerate(on_ranks):
        for name, first, other in zip(values, on_ranks[0].tolist(), others.tolist(), strict=True):
            if first != other:
                said = ["none" if value == -(1 << 62) else value for value in (other, first)]
                raise MismatchError(f"{what}: {name} is {said[0]} on rank {rank} and {said[1]} on rank 0: it must be the same")


def agree_on_failure(failure: BaseException | None) -> None:
    """Raises on all ranks what one rank met while it did something for all. Collective.

    Args:
        failure: what this rank met, or None.

    Raises:
        The failure itself on the rank that met it, TarantellaError with its text on the others.
    """
    if world().size == 1:
        texts = [""]
    else:
        own = (f"{type(failure).__name__}: {failure}" if failure is not None else "").encode()[:1000]
        texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in all_gather(_padded(own))]
    if failure is not None:
        raise failure
    for rank, text in enumerate(texts):
        if text:
            raise TarantellaError(f"rank {rank} failed: {text}")


def _padded(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text.ljust(1000, b"\0"), np.uint8)
