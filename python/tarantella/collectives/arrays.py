"""Conversions to NumPy arrays, without a copy where possible, and to bytes."""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_array(x: Any) -> NDArray[Any]:
    """x as an array: itself, a view of its memory (DLPack, `__array__`), or a new one of numbers and lists.

    Raises:
        TypeError: its memory cannot be read from here, such as a GPU's, or it is an array of which some elements are masked.
    """
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError("a masked array would lose its mask, as ranks exchange plain arrays: give what x.filled(value) returns")
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if hasattr(x, "__array__"):  # types that DLPack does not have, such as bfloat16
            return np.asarray(x)
        raise TypeError(f"cannot read a {type(x).__name__} without a copy in the host's memory: {error}") from None


def pack(arrays: Iterable[NDArray[Any]]) -> NDArray[np.uint8]:
    """The bytes of arrays one after another, as a new array."""
    return np.frombuffer(bytearray().join(array.tobytes() for array in arrays), np.uint8)


def unpack(data: NDArray[np.uint8], like: Iterable[NDArray[Any]]) -> list[NDArray[Any]]:
    """The arrays that `pack` has packed, as new ones. like: arrays of the same types and shapes."""
    found, at = [], 0
    for array in like:
        end = at + array.nbytes
        found.append(np.frombuffer(data[at:end].tobytes(), array.dtype).reshape(array.shape).copy())
        at = end
    return found


def is_tensor(x: Any) -> bool:
    """Whether x is a tensor or variable of TensorFlow or Keras. Does not import them."""
    asked = getattr(sys.modules.get("tensorflow"), "is_tensor", None)
    return asked is not None and bool(asked(x))
