"""The element types and operations of the library, and how arrays of NumPy's other types are sent with them."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella._native import Dtype, ReduceOp

Conversion = Callable[[NDArray[Any]], NDArray[Any]]

_TOP_BIT = np.uint64(1 << 63)
# exact also where they wrap: the lower bits of a sum or product do not depend on the upper ones
_WIDER = {"int16": "int32", "uint16": "int32", "uint32": "int64"}
_LOGICAL = {"and": "min", "or": "max"}
_OF_BOOLEANS = {**_LOGICAL, "sum": "max", "prod": "min"}


def operation(name: str) -> ReduceOp:
    """The library's operation of that name. Raises ValueError if it has none."""
    if name not in ReduceOp.__members__:
        raise ValueError(f"op is {name!r}: use one of {', '.join(ReduceOp.__members__)}")
    return ReduceOp[name]


def element_type(name: str) -> Dtype:
    """The library's element type of that name. Raises TypeError if it has none."""
    if name not in Dtype.__members__:
        raise TypeError(f"cannot reduce elements of type {name}: use one of {', '.join(Dtype.__members__)}")
    return Dtype[name]


def as_library_type(array: NDArray[Any]) -> tuple[NDArray[Any], Dtype]:
    """The array as the native module takes it, and its element type there. Raises TypeError for types that it cannot reduce."""
    dtype = element_type(array.dtype.name)
    return (array.view(np.uint16) if dtype == Dtype.bfloat16 else array), dtype


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The same memory as bytes. Raises TypeError for Python objects."""
    if array.dtype.hasobject:
        raise TypeError("cannot send Python objects: use an array of numbers")
    return array.reshape(-1).view(np.uint8)


@dataclass(frozen=True)
class WireFormat:
    """How flat arrays of one type go through a reduction."""

    op: str
    """As `tnt.all_reduce` names it."""
    encode: Conversion
    """Makes the array that is sent, of a type of the library's; it may be the same array."""
    decode: Conversion
    """Makes an array of the encoded type out of the reduced one."""


@functools.cache
def wire_format(dtype: np.dtype[Any], op: str) -> WireFormat:
    """How elements of this type are reduced by sum, prod, min, max, and, or. Raises TypeError where that makes no sense."""

    def back(array: NDArray[Any]) -> NDArray[Any]:
        return array.astype(dtype, copy=False)

    def as_type(name: str) -> Conversion:
        return lambda array: array.astype(name)

    name = dtype.name
    if dtype.kind == "b":
        return WireFormat(_OF_BOOLEANS.get(op, op), as_type("uint8"), back)
    if op in _LOGICAL and (name in Dtype.__members__ or dtype.kind in "iufc"):
        return WireFormat(_LOGICAL[op], lambda array: (array != 0).astype("uint8"), back)
    if name in Dtype.__members__:
        return WireFormat(op, lambda array: array.astype(dtype.newbyteorder("="), copy=False), back)
    if name in _WIDER:
        return WireFormat(op, as_type(_WIDER[name]), back)
    if name == "uint64" and op in ("sum", "prod"):
        return WireFormat(op, as_type("int64"), back)
    if name == "uint64":  # in the order of signed numbers
        return WireFormat(op, lambda a: (a ^ _TOP_BIT).view("int64"), lambda a: a.view("uint64") ^ _TOP_BIT)
    if name in ("complex64", "complex128") and op == "sum":
        half = f"float{dtype.itemsize * 4}"
        return WireFormat(op, lambda array: array.astype(name).view(half), lambda array: array.view(name))
    raise TypeError(f"cannot take the {op.upper()} of elements of type {name}: use numbers or booleans of a usual type")
