"""How ranks' elements become one, and as what elements of a type travel that the library does not add up itself."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import runtime


class ReductionOp(enum.Enum):
    """What an `Allreduce` computes of all ranks' elements.

    AND and OR ask of each element whether it is zero, and give 0 or 1 in its type. Of booleans SUM is OR and PROD is AND, as in
    NumPy.
    """

    SUM = "sum"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"


Conversion = Callable[[NDArray[Any]], NDArray[Any]]

_TOP_BIT = np.uint64(1 << 63)
# exact also where they wrap: the lower bits of a sum or product do not depend on the upper ones
_WIDER = {"int16": "int32", "uint16": "int32", "uint32": "int64"}
_LOGICAL = {ReductionOp.AND: "min", ReductionOp.OR: "max"}
_OF_BOOLEANS = _LOGICAL | {ReductionOp.SUM: "max", ReductionOp.PROD: "min"}


@dataclass(frozen=True)
class Travel:
    """How flat arrays of one type go through a reduction."""

    op: str
    """As `tnt.all_reduce` names it."""
    encode: Conversion
    """Of an array, what travels: one of a type of the library's, which may be the same array."""
    decode: Conversion
    """Of the reduced one, an array of the type that was encoded."""


@functools.cache
def travel(dtype: np.dtype[Any], op: ReductionOp) -> Travel:
    """How elements of this type are reduced. Raises TypeError for types that are not numbers, and for what has no order."""

    def back(array: NDArray[Any]) -> NDArray[Any]:
        return array.astype(dtype, copy=False)

    def as_type(name: str) -> Conversion:
        return lambda array: array.astype(name)

    name = dtype.name
    if dtype.kind == "b":
        return Travel(_OF_BOOLEANS.get(op, op.value), as_type("uint8"), back)
    if op in _LOGICAL and (name in runtime._DTYPES or dtype.kind in "iufc"):
        return Travel(_LOGICAL[op], lambda array: (array != 0).astype("uint8"), back)
    if name in runtime._DTYPES:
        return Travel(op.value, lambda array: array.astype(dtype.newbyteorder("="), copy=False), back)
    if name in _WIDER:
        return Travel(op.value, as_type(_WIDER[name]), back)
    if name == "uint64" and op in (ReductionOp.SUM, ReductionOp.PROD):
        return Travel(op.value, as_type("int64"), back)
    if name == "uint64":  # in the order of signed numbers
        return Travel(op.value, lambda a: (a ^ _TOP_BIT).view("int64"), lambda a: a.view("uint64") ^ _TOP_BIT)
    if name in ("complex64", "complex128") and op is ReductionOp.SUM:
        half = f"float{dtype.itemsize * 4}"
        return Travel(op.value, lambda array: array.astype(name).view(half), lambda array: array.view(name))
    raise TypeError(f"cannot take the {op.name} of elements of type {name}: use numbers or booleans of a usual type")


UFUNCS: dict[str, Callable[..., Any]] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def reduce_here(parts: list[NDArray[Any]], op: str) -> NDArray[Any]:
    """The reduction of arrays of one travelling type, in their order; of 16-bit floats in float32, rounded once."""
    dtype = parts[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    total = parts[0].astype(wide)
    for part in parts[1:]:
        UFUNCS[op](total, part.astype(wide, copy=False), out=total)
    return total.astype(dtype, copy=False)
