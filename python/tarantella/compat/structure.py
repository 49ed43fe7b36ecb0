"""Flattens numbers, arrays and tensors in lists, tuples and dicts, and rebuilds these structures with other values."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella.collectives.arrays import as_array, is_tensor

LEAVES = "numbers, arrays and tensors"


@dataclass(frozen=True)
class Leaf:
    """A number, array or tensor, and its place in the structure."""

    name: str
    """As Python would write it: `inputs['a'][1]`."""
    kind: str
    """number, array or tensor."""
    array: NDArray[Any]
    like: Callable[[NDArray[Any]], Any]
    """Makes a number, array or tensor of the same kind with these values."""

    @property
    def type(self) -> str:
        return f"{self.kind} of {self.array.dtype.name}"

    def __str__(self) -> str:
        shape = "" if self.kind == "number" else f" and shape {self.array.shape}"
        return f"{self.name}: {self.type}{shape}"


def leaf(x: Any, name: str = "inputs") -> Leaf:
    """x as a leaf. Raises TypeError if it is none."""
    if is_tensor(x):
        return _tensor(x, name)
    if isinstance(x, bool | int | float | complex | np.generic):
        array = np.asarray(x)
        kind, like = "number", _number(x)
    elif isinstance(x, np.ndarray) or hasattr(x, "__dlpack__"):
        array = as_array(x)
        kind, like = "array", _same
    else:
        raise TypeError(f"{name} is a {type(x).__name__}: use {LEAVES}")
    if array.dtype.hasobject:
        raise TypeError(f"{name} holds Python objects: use numbers of a type of NumPy's")
    return Leaf(name, kind, array, like)


def flatten(x: Any, name: str = "inputs") -> list[Leaf]:
    """All leaves of x, of dicts in the order of their keys' names. Raises TypeError for any other value."""
    if isinstance(x, dict):
        return [found for key in sorted(x, key=repr) for found in flatten(x[key], f"{name}[{key!r}]")]
    if isinstance(x, list | tuple):
        return [found for i, value in enumerate(x) for found in flatten(value, f"{name}[{i}]")]
    try:
        return [leaf(x, name)]
    except TypeError as error:
        raise TypeError(f"{error}, or lists, tuples and dicts of them") from None


def rebuild(x: Any, values: Sequence[Any]) -> Any:
    """x with these values for its leaves, in their order."""
    return _rebuild(x, iter(values))


def _rebuild(x: Any, values: Iterator[Any]) -> Any:
    if isinstance(x, dict):
        found = {key: _rebuild(x[key], values) for key in sorted(x, key=repr)}
        return {key: found[key] for key in x}
    if isinstance(x, list | tuple):
        made = [_rebuild(value, values) for value in x]
        return made if isinstance(x, list) else type(x)(*made) if hasattr(x, "_fields") else tuple(made)
    return next(values)


def _same(array: NDArray[Any]) -> Any:
    return array


def _number(x: Any) -> Callable[[NDArray[Any]], Any]:
    """Makes numbers of x's type; for a float a NumPy float64, which is a float."""
    return (lambda array: type(x)(array.item())) if isinstance(x, int) else (lambda array: array[()])


def _tensor(x: Any, name: str) -> Leaf:
    import tensorflow as tf

    if not tf.executing_eagerly():
        raise TypeError(f"{name} is a tensor of a graph: inside a tf.function use tnt.all_reduce")
    eager = tf.convert_to_tensor(x)
    if not eager.dtype.is_numpy_compatible or eager.dtype == tf.string:
        raise TypeError(f"{name} is a tensor of {eager.dtype.name}: use numbers or booleans")
    return Leaf(name, "tensor", eager.numpy(), lambda array: tf.convert_to_tensor(array, eager.dtype))
