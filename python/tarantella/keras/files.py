"""Files and folders that the master writes once and puts in their place when they are complete."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarantella import collectives, runtime

if TYPE_CHECKING:
    from collections.abc import Callable


def write(filepath: Any, write_to: Callable[[str], Any], on_all_ranks: bool = False) -> None:
    """Writes the file on the master, or on every rank, and lets all ranks go on when it is there. Collective.

    The file is written beside its place, synced and renamed: a reader sees the old file or the new one, even if the process
    is killed meanwhile.

    Args:
        filepath: the file's place.
        write_to: writes the file to the path that it is given (same name, in a folder beside it).

    Raises:
        The exception of `write_to`, on the rank that wrote; TarantellaError with its text on the others.
    """
    failure: BaseException | None = None
    if on_all_ranks or runtime.is_master_rank():
        try:
            replace(Path(os.fspath(filepath)), write_to)
        except Exception as error:
            failure = error
    collectives.agree_on_failure(failure)


def replace(path: Path, write_to: Callable[[str], Any]) -> None:
    """Writes a file or folder as `write` does, on this rank alone; or several files whose names begin alike."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    beside.mkdir()
    try:
        write_to(str(beside / path.name))
        for written in sorted(beside.rglob("*")):
            sync(written)
        # of a checkpoint of TensorFlow's, the files that name the others come last
        for made in sorted(beside.iterdir(), key=lambda file: (file.name == "checkpoint", file.suffix == ".index")):
            _move(made, path.with_name(made.name))
        sync(path.parent)
    finally:
        shutil.rmtree(beside)


def _move(made: Path, path: Path) -> None:
    """Renames it. No call replaces a folder that is not empty: the old one is moved away just before."""
    old = made.with_name(f"{made.name}.old")
    if path.is_dir():
        os.replace(path, old)
    try:
        os.replace(made, path)
    except OSError:
        if old.exists():
            os.replace(old, path)
        raise


def sync(path: Path) -> None:
    """Returns when the file, or the list of a folder's files, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
