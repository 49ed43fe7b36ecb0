"""Sends objects from one rank to all, as JSON and the bytes of arrays. Unlike a pickle, nothing of it is executed."""

import importlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import runtime
from tarantella.collectives.agreement import agree_on_failure
from tarantella.collectives.arrays import pack, unpack
from tarantella.collectives.blocking import all_gather, broadcast, guardable
from tarantella.errors import InvalidArgumentError


@guardable
def broadcast_object(obj: Any, root: int = 0) -> Any:
    """Root's object, on every rank. Collective.

    Args:
        obj: None, booleans, numbers, strings, NumPy's arrays and scalars, and lists, tuples and dicts of them; on ranks other
            than root it does not matter.
        root: the rank whose object is taken.

    Returns:
        On root obj itself, elsewhere an equal one; tuples stay tuples, keys and arrays keep their types.

    Raises:
        InvalidArgumentError: there is no such rank. TypeError: something else is in obj (on the other ranks TarantellaError
        with the same text).

    Examples:
        >>> tnt.broadcast_object({"layers": (64, 10), "seed": 7, "mean": np.zeros(3)} if tnt.is_master_rank() else None)
    """
    rank = runtime.get_rank()
    if not 0 <= root < runtime.get_size():
        raise InvalidArgumentError(f"root is {root}: the job has ranks 0 to {runtime.get_size() - 1}")
    sent, failure = b"", None
    arrays: list[NDArray[Any]] = []
    if rank == root:
        try:
            sent = json.dumps(_encode(obj, arrays)).encode()
        except (TypeError, RecursionError) as error:
            failure = error
    agree_on_failure(failure)
    sizes = broadcast(np.array([len(sent), sum(array.nbytes for array in arrays)]), root)
    text = broadcast(np.frombuffer(sent, np.uint8) if rank == root else np.empty(sizes[0], np.uint8), root)
    data = broadcast(pack(arrays) if rank == root else np.empty(sizes[1], np.uint8), root)
    return obj if rank == root else _Decoder(data).decode(json.loads(text.tobytes()))


@guardable
def all_gather_object(obj: Any) -> list[Any]:
    """All ranks' objects, in their order, on every rank. Collective. obj: of what `broadcast_object` takes."""
    sent = np.frombuffer(to_bytes(obj), np.uint8)
    sizes = all_gather(np.array([len(sent)], np.int64)).ravel()
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(sent)] = sent
    return [from_bytes(row[:size].tobytes()) for row, size in zip(all_gather(padded), sizes, strict=True)]


def to_bytes(obj: Any) -> bytes:
    """The object as bytes, from which `from_bytes` makes an equal one. Raises TypeError for what `broadcast_object` refuses."""
    arrays: list[NDArray[Any]] = []
    text = json.dumps(_encode(obj, arrays)).encode()
    return len(text).to_bytes(8, "little") + text + pack(arrays).tobytes()


def from_bytes(data: bytes) -> Any:
    """The object of which `to_bytes` has made these bytes. Nothing of it is executed."""
    end = 8 + int.from_bytes(data[:8], "little")
    return _Decoder(np.frombuffer(data[end:], np.uint8)).decode(json.loads(data[8:end]))


def _encode(x: Any, arrays: list[NDArray[Any]]) -> Any:
    """The object for JSON: containers and arrays become lists that begin with their kind. Appends the arrays to `arrays`."""
    if x is None or type(x) in (bool, int, float, str):
        return x
    if isinstance(x, list | tuple):
        return ["list" if isinstance(x, list) else "tuple", *(_encode(value, arrays) for value in x)]
    if isinstance(x, dict):
        return ["dict", *([_encode(key, arrays), _encode(value, arrays)] for key, value in x.items())]
    if isinstance(x, np.ndarray | np.generic):
        if x.dtype.hasobject or x.dtype.type is np.void:
            raise TypeError(f"tnt.broadcast_object: cannot send an array of {x.dtype}: use an array of numbers")
        arrays.append(np.asarray(x))
        name = x.dtype.name if x.dtype.kind == "V" else x.dtype.str  # bfloat16 and similar types have no other name
        return ["array" if isinstance(x, np.ndarray) else "scalar", name, list(x.shape)]
    raise TypeError(f"tnt.broadcast_object: cannot send a {type(x).__name__}: use what JSON can hold, and NumPy arrays")


class _Decoder:
    """Decodes what `_encode` has made. data: the bytes of the arrays, one after another."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._at = 0

    def decode(self, x: Any) -> Any:
        if not isinstance(x, list):
            return x
        kind, *values = x
        if kind == "dict":
            return {self.decode(key): self.decode(value) for key, value in values}
        if kind in ("list", "tuple"):
            made = [self.decode(value) for value in values]
            return made if kind == "list" else tuple(made)
        array = self._array(*values)
        return array if kind == "array" else array[()]

    def _array(self, name: str, shape: list[int]) -> NDArray[Any]:
        if name[0] not in "<>|=":
            importlib.import_module("ml_dtypes")  # defines the type for NumPy
        dtype = np.dtype(name)
        (array,) = unpack(self._data[self._at :], [np.empty(shape, dtype)])
        self._at += array.nbytes
        return array
