"""Checkpoints in parts: each rank writes the variables that it holds, and the master a file that says where each one is.

Beside that file, ``fitF-stepS.npz``, there is a folder ``fitF-stepS.XXXXXXXX`` with ``part0.npz``, ``part1.npz`` and so on, of
the same format. A variable that is in a part is described by ``part``, ``name``, ``shape`` and ``dtype``. The parts' checksums
are in the master's file, so the parts of different checkpoints cannot be mixed.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarantella import runtime
from tarantella.keras.checkpoint import format as file_format
from tarantella.keras.checkpoint.format import DamagedError

_LOOK_EVERY = 0.05  # seconds


class PartMissingError(Exception):
    """A rank's part has not appeared; the text names it."""


class StoredArray:
    """An array in a part, which is read when it is asked for."""

    def __init__(self, part: file_format.Reader, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._part, self._name = part, name
        self.shape, self.dtype = shape, dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        found = self._part.array(self._name)
        if found.dtype != self.dtype and found.dtype.itemsize == self.dtype.itemsize:
            found = found.view(self.dtype)
        if found.shape != self.shape or found.dtype != self.dtype:
            raise DamagedError(f"{self._name} of {self._part.path} is not what the checkpoint says")
        return found if dtype is None else found.astype(dtype, copy=False)


def folder_name(place: Path) -> str:
    """A new name of a folder for the parts of the checkpoint in this place."""
    return f"{place.stem}.{uuid.uuid4().hex[:8]}"


def part_name(rank: int) -> str:
    """The file of a rank's part."""
    return f"part{rank}.npz"


def write(folder: Path, rank: int, values: Sequence[NDArray[Any]]) -> None:
    """Writes a rank's part. Readers see it when it is complete and synced."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"rank 0 has made this folder, and rank {rank} does not see it: all ranks must see the same folder"
        )
    file_format.write_whole(folder / part_name(rank), {"values": list(values)})


class Held(NamedTuple):
    """A variable, the rank in whose part it is, and how that rank gets a copy of its value."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    rank: int
    value: Callable[[], NDArray[Any]]


def divided(groups: dict[str, list[Held]]) -> tuple[dict[str, list[dict[str, Any]]], list[NDArray[Any]]]:
    """The descriptions of all variables, and the values of those in this rank's part. groups: the same on all ranks."""
    described: dict[str, list[dict[str, Any]]] = {}
    numbers: Counter[int] = Counter()
    own = []
    for group, variables in groups.items():
        described[group] = []
        for path, shape, dtype, rank, value in variables:
            name = f"values.{numbers[rank]}"
            described[group].append({"path": path, "part": rank, "name": name, "shape": list(shape), "dtype": dtype})
            numbers[rank] += 1
            if rank == runtime.get_rank():
                own.append(value())
    return described, own


def wait_for(folder: Path, ranks: int, given_up: threading.Event, seconds: float) -> list[str]:
    """The checksums of all ranks' parts, as soon as they are there.

    Raises:
        PartMissingError: `given_up` was set before.
        FileNotFoundError: they are not there after these seconds.
    """
    found, deadline = [], time.monotonic() + seconds
    for rank in range(ranks):
        path = folder / part_name(rank)
        while not path.exists():
            if given_up.wait(_LOOK_EVERY):
                raise PartMissingError(f"{path}, the part of rank {rank}, has not appeared")
            if time.monotonic() > deadline:
                raise FileNotFoundError(
                    f"{path}, the part of rank {rank}, has not appeared within {seconds:g} s (TNT_TIMEOUT): has something "
                    "removed it, or does that rank see another folder?"
                )
        found.append(file_format.checksum_at_end(path))
    return found


def resolve(tree: dict[str, Any], folder: Path) -> None:
    """Puts arrays, which are read later, in the place of the variables that are in parts.

    Raises:
        DamagedError: a part is missing or damaged, or of another checkpoint.
    """
    described = tree.pop("parts", None)
    if described is None:
        return
    try:
        readers = [
            _part(folder / described["folder"] / part_name(rank), checksum)
            for rank, checksum in enumerate(described["checksums"])
        ]
        for items in tree["variables"].values():
            for item in items:
                if "part" in item:
                    part, name = readers[item.pop("part")], item.pop("name")
                    part.require(name)
                    shape, dtype = tuple(map(int, item.pop("shape"))), file_format.dtype_named(item.pop("dtype"))
                    item["value"] = StoredArray(part, name, shape, dtype)
    except (DamagedError, OSError):
        raise
    except Exception as error:
        raise DamagedError(
            f"its checksum is right, but it does not describe its parts ({type(error).__name__}: {error})"
        ) from error


def _part(path: Path, checksum: str) -> file_format.Reader:
    try:
        part = file_format.Reader(path)
    except FileNotFoundError as error:
        raise DamagedError(f"its part {path} is missing") from error
    except DamagedError as error:
        raise DamagedError(f"its part {path} is damaged: {error}") from error
    if part.checksum != checksum:
        raise DamagedError(f"{path} is not the part that belongs to it")
    return part
