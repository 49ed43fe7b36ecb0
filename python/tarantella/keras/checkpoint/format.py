"""The file format of a checkpoint: NumPy's ``.npz``, with a JSON text that describes the arrays, and a checksum.

The member ``checkpoint.json`` holds the plain values. In the place of an array the text has ``{"array": NAME}``, and the member
``NAME.npy`` holds the array. Element types that NumPy itself does not know, such as bfloat16, are stored as integers of their
size and marked as ``{"array": NAME, "dtype": "bfloat16"}``. The zip archive ends with a comment: ``sha256:`` and the checksum
of every byte before the checksum itself. So damage anywhere is detected, and `numpy.load` reads the file as any other.
"""

import errno
import hashlib
import importlib
import json
import math
import os
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tarantella.errors import InvalidArgumentError
from tarantella.keras import files

VERSION = 2  # 1: without parts

_NAME = "tarantella checkpoint"
_TEXT = "checkpoint.json"
_MARK = b"sha256:"
_DIGITS = 64
_BLOCK = 4 << 20
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class DamagedError(Exception):
    """The file is incomplete, or not a checkpoint; the text says which."""


def write(file: BinaryIO, tree: dict[str, Any]) -> None:
    """Writes a checkpoint into an empty file that can be read as well.

    Args:
        tree: None, booleans, numbers, strings and NumPy's arrays and scalars, in lists and dicts with strings as keys. Tuples
            come back as lists.

    Raises:
        TypeError: something else is in the tree. OSError: of the file.
    """
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps({"format": _NAME, "version": 2 if "parts" in tree else 1, **encode(tree, arrays)}, indent=1)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.comment = _MARK + b"0" * _DIGITS
        archive.writestr(_TEXT, text)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    file.flush()
    digest = _digest(file, file.seek(0, os.SEEK_END) - _DIGITS)
    file.seek(-_DIGITS, os.SEEK_END)
    file.write(digest)
    file.flush()


def write_whole(path: Path, tree: dict[str, Any]) -> None:
    """Writes a checkpoint beside its place, and renames it when it is complete and synced."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with beside.open("x+b") as file:
            write(file, tree)
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    files.sync(path.parent)


def read(path: Path) -> dict[str, Any]:
    """Reads the tree that `write` got.

    Raises:
        DamagedError: the file is damaged. InvalidArgumentError: a later version of this library wrote it. OSError: of the file.
    """
    return Reader(path).tree()


class Reader:
    """A checkpoint whose checksum is right.

    Args:
        path: the file. It is open until the reader is gone.

    Attributes:
        checksum: its text.

    Raises:
        DamagedError, OSError: as `read`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        self._size = self._file.seek(0, os.SEEK_END)
        if self._size < len(_MARK) + _DIGITS:
            raise DamagedError(f"it has {self._size} bytes, too few for a checkpoint")
        self._file.seek(-_DIGITS - len(_MARK), os.SEEK_END)
        mark, stored = self._file.read(len(_MARK)), self._file.read()
        if mark != _MARK:
            raise DamagedError("its end, with the checksum, is missing")
        if _digest(self._file, self._size - _DIGITS) != stored:
            raise DamagedError("its checksum is not that of its bytes")
        self.checksum = stored.decode()
        self._archive: zipfile.ZipFile = _explained(self._opened)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def tree(self) -> dict[str, Any]:
        """All that is in it, as `read` gives it."""
        found: dict[str, Any] = _explained(self._tree)
        return found

    def require(self, name: str) -> None:
        """Raises KeyError if there is no such array."""
        self._archive.getinfo(f"{name}.npy")

    def array(self, name: str) -> NDArray[Any]:
        """One array, as it is stored."""
        found: NDArray[Any] = _explained(lambda: _array(self._archive, f"{name}.npy"))
        return found

    def _opened(self) -> zipfile.ZipFile:
        """The file may still be anything.

        Members are stored as they are and each array is read once, so no more memory is needed than the file has bytes.
        """
        self._file.seek(0)
        archive = zipfile.ZipFile(self._file)
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise DamagedError("its checksum is right, but a checkpoint is not compressed")
        if sum(member.file_size for member in members) > self._size:
            raise DamagedError("its checksum is right, but its members are larger than the file")
        return archive

    def _tree(self) -> dict[str, Any]:
        tree = json.loads(self._archive.read(_TEXT))
        if not isinstance(tree, dict) or tree.get("format") != _NAME or not isinstance(tree.get("version"), int):
            raise DamagedError(f"its checksum is right, but {_TEXT} is not of a {_NAME}")
        if tree["version"] > VERSION:
            raise InvalidArgumentError(
                f"{self.path} is of version {tree['version']} of the format, and this library reads up to {VERSION}: use "
                "the version of Tarantella that wrote it, or another folder"
            )
        result: dict[str, Any] = _decoded(tree, self._archive, set())
        return result


def _explained(read: Callable[[], Any]) -> Any:
    """What it returns, with one kind of error for files that somebody has made up."""
    try:
        return read()
    except (InvalidArgumentError, DamagedError, MemoryError):
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise DamagedError("its checksum is right, but its archive points outside of it") from error
    except Exception as error:  # Python's and NumPy's readers raise many kinds
        raise DamagedError(f"its checksum is right, but it is no checkpoint ({type(error).__name__}: {error})") from error


def checksum_at_end(path: Path) -> str:
    """The checksum that a complete checkpoint ends with."""
    with path.open("rb") as file:
        file.seek(-_DIGITS, os.SEEK_END)
        return file.read().decode()


def text_of(path: Path) -> dict[str, Any]:
    """The plain values of a checkpoint, whose checksum is not looked at; empty if it is damaged.

    Raises OSError if it cannot be read.
    """

    def read_text() -> Any:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read(_TEXT))

    try:
        text = _explained(read_text)
    except DamagedError:
        return {}
    return text if isinstance(text, dict) else {}


def _digest(file: BinaryIO, size: int) -> bytes:
    """The checksum of the first bytes of the file, as text."""
    sha = hashlib.sha256()
    file.seek(0)
    while size > 0:
        block = file.read(min(_BLOCK, size))
        if not block:
            raise DamagedError("it is shorter than it was")
        sha.update(block)
        size -= len(block)
    return sha.hexdigest().encode()


def encode(value: Any, arrays: dict[str, NDArray[Any]], path: str = "") -> Any:
    """The value for JSON. Its arrays are added to `arrays`, named by their place in the value.

    Raises:
        TypeError: the value holds something that `write` does not take.
    """
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: encode(item, arrays, f"{path}.{key}" if path else key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item, arrays, f"{path}.{index}") for index, item in enumerate(value)]
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        array = np.asarray(value)
        if array.dtype.kind != "V":
            arrays[path] = array
            return {"array": path}
        arrays[path] = array.view(_UNSIGNED[array.dtype.itemsize])
        return {"array": path, "dtype": array.dtype.name}
    where = f" at {path}" if path else ""
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}{where}: use numbers, strings, arrays, lists and dicts")


def _decoded(value: Any, archive: zipfile.ZipFile, seen: set[str]) -> Any:
    """seen: the names of the arrays that were read."""
    if isinstance(value, list):
        return [_decoded(item, archive, seen) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" not in value or not set(value) <= {"array", "dtype"}:
        return {key: _decoded(item, archive, seen) for key, item in value.items()}
    name = str(value["array"])
    if name in seen:
        raise DamagedError(f"its checksum is right, but the array {name} is in it twice")
    seen.add(name)
    array = _array(archive, f"{name}.npy")
    if "dtype" in value:
        array = array.view(dtype_named(value["dtype"]))
    return array if array.ndim else array[()]


def dtype_named(name: str) -> np.dtype[Any]:
    """The element type, also one that NumPy itself does not know."""
    importlib.import_module("ml_dtypes")  # by which NumPy knows bfloat16
    return np.dtype(name)


def _array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """NumPy takes memory for the shape in the header before it finds out that there is less data, so that is compared first."""
    with archive.open(name) as member:
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        try:
            shape, _, dtype = read_header[np.lib.format.read_magic(member)](member)
        except MemoryError as error:  # of Python's parser: NumPy reads 10,000 characters at most
            raise DamagedError(f"its checksum is right, but the header of {name} is nested too deeply") from error
        if member.tell() + math.prod(shape) * dtype.itemsize != archive.getinfo(name).file_size:
            raise DamagedError(f"its checksum is right, but {name} has not the size of an array of shape {shape}")
    with archive.open(name) as member:
        array: NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
    return array
