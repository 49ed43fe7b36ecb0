"""Collectives on NumPy arrays over all ranks that return when they are done."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tarantella import runtime
from tarantella._native import Dtype
from tarantella.collectives.arrays import as_array
from tarantella.collectives.wire import as_bytes, as_library_type, operation

_first: Callable[[], None] | None = None
_guard: Callable[[Callable[[], Any]], Any] | None = None

Collective = TypeVar("Collective", bound="Callable[..., Any]")


@contextmanager
def preceded(action: Callable[[], None] | None) -> Iterator[None]:
    """In this context the action comes before each of these collectives; None: nothing does."""
    global _first
    before, _first = _first, action
    try:
        yield
    finally:
        _first = before


@contextmanager
def guarded(guard: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """In this context the guard calls each of these collectives, which may fail: it may do so again, or give another result."""
    global _guard
    before, _guard = _guard, guard
    try:
        yield
    finally:
        _guard = before


def as_one(operation: Callable[[], Any]) -> Any:
    """Calls what makes several collectives, or others than those here, as one collective that a guard may make again.

    operation: returns what `broadcast_object` takes.
    """
    return operation() if _guard is None else _guard(operation)


def guardable(collective: Collective) -> Collective:
    """A collective that a guard calls, where there is one (`guarded`)."""

    @functools.wraps(collective)
    def call(*args: Any, **kwargs: Any) -> Any:
        return as_one(lambda: collective(*args, **kwargs))

    return cast("Collective", call)


def _begin() -> None:
    if _first is not None:
        action = _first
        with preceded(None):
            action()


@guardable
def barrier() -> None:
    """Returns after all ranks have called it."""
    _begin()
    runtime.world().barrier()


@guardable
def all_reduce(x: ArrayLike | Any, op: str = "sum", out: NDArray[Any] | None = None) -> Any:
    """The elementwise reduction of arrays and numbers over all ranks, on every rank. Collective. See `tnt.all_reduce`."""
    operation_code = operation(op)
    given = as_array(x)
    source = np.ascontiguousarray(given)
    source = source.astype(source.dtype.newbyteorder("="), copy=False)
    result = np.empty_like(source) if out is None else _flat_output(out, given)
    if out is not None and out.ctypes.data != source.ctypes.data and np.may_share_memory(out, source):
        source = source.copy()  # in place means exactly the same memory; these only overlap
    _begin()
    wire_in, dtype = as_library_type(source)
    wire_out, _ = as_library_type(result)
    runtime.world().all_reduce(wire_in, wire_out, dtype, operation_code)
    return result.reshape(given.shape) if out is None else out


def _flat_output(out: NDArray[Any], given: NDArray[Any]) -> NDArray[Any]:
    """out as a flat view. Raises ValueError if it cannot take the result for `given`."""
    if out.shape != given.shape or out.dtype != given.dtype:
        raise ValueError(
            f"out must be an array of shape {given.shape} and type {given.dtype}, not of shape {out.shape} and type {out.dtype}"
        )
    faults = {
        "in the machine's byte order": out.dtype.isnative,
        "contiguous (in C's order, not a transposed array or a slice with a step)": out.flags.c_contiguous,
        "writable": out.flags.writeable,
    }
    missing = [what for what, is_so in faults.items() if not is_so]
    if missing:
        raise ValueError(f"out must be {' and '.join(missing)}: give another array, or copy the result into this one")
    return out.reshape(-1)


@guardable
def all_gather(x: ArrayLike) -> NDArray[Any]:
    """All ranks' arrays, stacked along a new first axis, on every rank. Collective. See `tnt.all_gather`."""
    given = as_array(x)
    source = np.ascontiguousarray(given)
    result = np.empty((runtime.get_size(), *given.shape), source.dtype)
    _begin()
    runtime.world().all_gather(as_bytes(source), as_bytes(result), Dtype.uint8)
    return result


@guardable
def broadcast(x: ArrayLike, root: int = 0) -> NDArray[Any]:
    """Root's array, on every rank. Collective.

    Args:
        x: same shape and dtype on all ranks, any dtype of fixed size; the values of ranks other than root do not matter.
        root: the rank whose values are taken.
    """
    result = np.array(as_array(x), copy=True, order="C")
    _begin()
    runtime.world().broadcast(as_bytes(result), Dtype.uint8, root)
    return result
