"""Files that are written once, by the master, and never half."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarantella import runtime

if TYPE_CHECKING:
    from collections.abc import Callable


def write(filepath: Any, write_to: Callable[[str], Any], on_all_ranks: bool = False) -> None:
    """Writes the file on the master, or on every rank, and lets all ranks go on when it is there. Collective.

    The file is written beside its place, synced and renamed: whoever looks sees the old file or the new one, also if the
    process is killed meanwhile.

    Args:
        filepath: where the file shall be.
        write_to: writes it to the path it is given (same folder, same ending).

    Raises:
        What `write_to` raised, on the rank that wrote; TarantellaError with its text on the others.
    """
    failure: BaseException | None = None
    if on_all_ranks or runtime.is_master_rank():
        try:
            replace(Path(os.fspath(filepath)), write_to)
        except Exception as error:
            failure = error
    runtime.agree_on_failure(failure)


def replace(path: Path, write_to: Callable[[str], Any]) -> None:
    """Writes a file of this process' own, as `write` does. Not collective."""
    suffix = "".join(path.suffixes[-2:]) if path.name.endswith(".weights.h5") else path.suffix
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{suffix}")
    try:
        write_to(str(beside))
        if beside.is_file():
            _sync(beside)
        os.replace(beside, path)
        _sync(path.parent)
    finally:
        if beside.is_file():
            beside.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
