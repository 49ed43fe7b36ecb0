"""The checkpoints in a folder: their names, the newest good one, and those that are kept.

A file is called ``fitF-stepS.npz``: it was written after S steps of the script's F-th `fit` with this folder. It may have a
folder of parts beside it (`parts`). Files with other names are left alone.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarantella.keras.checkpoint import format as file_format
from tarantella.keras.checkpoint import parts

_COMPLETE = re.compile(r"fit(\d+)-step(\d+)\.npz")
_PARTS = re.compile(r"fit\d+-step\d+\.[0-9a-f]{8}")
_UNFINISHED = re.compile(r"\.fit\d+-step\d+\.npz\.[0-9a-f]{8}\.part")


class Folder:
    """The checkpoints of one call of `fit`; only the master has one.

    Args:
        path: of the folder, which is made if it does not exist.
        fit: the number of the call, from 1.
        keep: how many good checkpoints stay.
        warn: is called with a message for each damaged one.
    """

    def __init__(self, path: Path, fit: int, keep: int, warn: Callable[[str], None]) -> None:
        self._path, self._fit, self._keep, self._warn = path, fit, keep, warn
        self._damaged: set[Path] = set()
        path.mkdir(parents=True, exist_ok=True)
        for file in path.iterdir():
            if _UNFINISHED.fullmatch(file.name):  # of a process that was killed while it wrote
                file.unlink(missing_ok=True)
        used = {_folder_of_parts(file) for file in path.iterdir() if _COMPLETE.fullmatch(file.name)}
        for folder in path.iterdir():
            if _PARTS.fullmatch(folder.name) and folder not in used:  # likewise
                self._remove_parts(folder)

    def place(self, step: int) -> Path:
        """The path of the checkpoint after this many steps."""
        return self._path / f"fit{self._fit}-step{step:09d}.npz"

    def newest(self, check: Callable[[dict[str, Any]], None] | None = None) -> tuple[Path, dict[str, Any]] | None:
        """The last good checkpoint and its content; None if there is none.

        Args:
            check: raises `DamagedError` for a content that is not one of a checkpoint.

        Raises:
            OSError: a file cannot be read, so it is unknown whether it is good.
        """
        for path in reversed(self._complete()):
            try:
                tree = file_format.read(path)
                parts.resolve(tree, self._path)
                if check is not None:
                    check(tree)
            except file_format.DamagedError as damage:
                self._damaged.add(path)
                self._warn(f"the checkpoint {path} is damaged and is not used: {damage}")
            else:
                return path, tree
        return None

    def begin_parts(self, step: int) -> Path:
        """Makes a folder for the parts of a checkpoint."""
        folder = self._path / parts.folder_name(self.place(step))
        folder.mkdir()
        return folder

    def write(self, step: int, tree: dict[str, Any]) -> None:
        """Writes a checkpoint beside its place, renames it when it is complete and synced, and removes those too many."""
        path = self.place(step)
        replaced = _folder_of_parts(path) if path.exists() else None
        file_format.write_whole(path, tree)
        if replaced is not None:
            self._remove_parts(replaced)
        self._damaged.discard(path)
        self._remove_old(path)

    def _remove_old(self, newest: Path) -> None:
        """Removes those that are no longer needed, now that `newest` is safely in its place."""
        good = [path for path in self._complete() if path not in self._damaged]
        before = [path for path in good if _step(path) <= _step(newest)]
        for path in [*before[: -self._keep], *self._damaged]:
            folder = _folder_of_parts(path) if path.exists() else None
            path.unlink(missing_ok=True)
            if folder is not None:
                self._remove_parts(folder)
        self._damaged.clear()

    def _remove_parts(self, folder: Path) -> None:
        if not folder.is_symlink():
            shutil.rmtree(folder)
            return
        folder.unlink()
        self._warn(f"{folder}, the parts of a checkpoint that is not needed any more, was a symbolic link: what it names stays")

    def _complete(self) -> list[Path]:
        """The complete checkpoints of this fit, by their names, oldest first."""
        found = [(match, path) for path in self._path.iterdir() if (match := _COMPLETE.fullmatch(path.name))]
        return sorted((path for match, path in found if int(match[1]) == self._fit), key=_step)


def _folder_of_parts(path: Path) -> Path | None:
    """The folder with the parts of a checkpoint that has some; None also if the file is damaged."""
    described = file_format.text_of(path).get("parts")
    name = described.get("folder") if isinstance(described, dict) else None
    if not isinstance(name, str) or not _PARTS.fullmatch(name):
        return None
    return path.parent / name if (path.parent / name).is_dir() else None


def _step(path: Path) -> int:
    match = _COMPLETE.fullmatch(path.name)
    return int(match[2]) if match else -1
