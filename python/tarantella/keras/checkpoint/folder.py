"""Which checkpoints a folder has: their names, the newest good one, which of them are kept.

A file is ``fitF-stepS.npz``: of the script's F-th `fit` with this folder, after S steps of it. Whatever has another name is
somebody else's and stays as it is.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tarantella.keras import files
from tarantella.keras.checkpoint import format as file_format

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE = re.compile(r"fit(\d+)-step(\d+)\.npz")
_BESIDE = re.compile(r"\.fit\d+-step\d+\.npz\.[0-9a-f]{8}\.part")


class Folder:
    """The checkpoints of one call of `fit`; only the master has one.

    Args:
        path: of the folder; it is made if it is not there.
        fit: the number of the call, from 1.
        keep: how many good ones stay.
        warn: is told, in a sentence, of each that is damaged.
    """

    def __init__(self, path: Path, fit: int, keep: int, warn: Callable[[str], None]) -> None:
        self._path, self._fit, self._keep, self._warn = path, fit, keep, warn
        self._damaged: set[Path] = set()
        path.mkdir(parents=True, exist_ok=True)
        for left in path.iterdir():
            if _BESIDE.fullmatch(left.name):  # of a process that was killed while it wrote
                left.unlink(missing_ok=True)

    def place(self, step: int) -> Path:
        """Where the checkpoint after so many steps belongs."""
        return self._path / f"fit{self._fit}-step{step:09d}.npz"

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The last good checkpoint and what is in it; None if there is none.

        Raises:
            OSError: one cannot be read, so that nobody knows whether it is good.
        """
        for path in reversed(self._whole()):
            try:
                tree = file_format.read(path)
            except file_format.DamagedError as damage:
                self._damaged.add(path)
                self._warn(f"the checkpoint {path} is damaged and is not used: {damage}")
            else:
                return path, tree
        return None

    def write(self, step: int, tree: dict[str, Any]) -> None:
        """Writes a checkpoint beside its place, puts it there when it is complete and synced, and removes those too many."""
        path = self.place(step)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            with beside.open("x+b") as file:
                file_format.write(file, tree)
                os.fsync(file.fileno())
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        files.sync(self._path)
        self._damaged.discard(path)
        self._remove_old(path)

    def _remove_old(self, newest: Path) -> None:
        """After `newest` is there for good: those that a later one has made useless."""
        good = [path for path in self._whole() if path not in self._damaged]
        before = [path for path in good if _step(path) <= _step(newest)]
        for path in [*before[: -self._keep], *self._damaged]:
            path.unlink(missing_ok=True)
        self._damaged.clear()

    def _whole(self) -> list[Path]:
        """Those of this fit that have the name of a complete one, oldest first."""
        found = [(match, path) for path in self._path.iterdir() if (match := _WHOLE.fullmatch(path.name))]
        return sorted((path for match, path in found if int(match[1]) == self._fit), key=_step)


def _step(path: Path) -> int:
    match = _WHOLE.fullmatch(path.name)
    return int(match[2]) if match else -1
