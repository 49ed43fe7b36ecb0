"""Threads that write checkpoints while training goes on, one at a time, and the view of them that all ranks share."""

import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tarantella import collectives, runtime, settings
from tarantella.errors import TarantellaError
from tarantella.keras.checkpoint import parts
from tarantella.keras.checkpoint.folder import Folder

_FREE, _BUSY, _FAILED = range(3)
_GRACE = 30.0  # seconds for other ranks to finish their parts, where the training has ended with an error


class Writer:
    """Writes on this rank.

    Args:
        warn: is called with a message as soon as a checkpoint could not be written.

    Attributes:
        given_up: set when this rank shall not wait for the parts of other ranks any more.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._thread: threading.Thread | None = None
        self._error: TarantellaError | None = None
        self.given_up = threading.Event()

    def begin(self, place: Path, write: Callable[[], None]) -> None:
        """Begins to call `write`, which writes a checkpoint to this place; the one before must be done."""
        self._thread = threading.Thread(target=self._write, args=(place, write), name="tarantella-checkpoint")
        self._thread.start()

    def _write(self, place: Path, write: Callable[[], None]) -> None:
        try:
            write()
        except parts.PartMissingError as why:  # the rank that should have written it has an error of its own
            self._warn(f"no checkpoint {place}: {why}")
        except Exception as error:
            text = (
                f"cannot write the checkpoint {place} ({type(error).__name__}: {error}): the earlier ones are unharmed; "
                f"{_remedy(error)}, and start the script again"
            )
            self._warn(text)
            self._error = TarantellaError(text)
            self._error.__cause__ = error

    def wait(self, seconds: float | None = None) -> bool:
        """Whether nothing is being written any more, after this many seconds at most (None: however long it takes)."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    @property
    def has_failed(self) -> bool:
        """Whether a checkpoint could not be written, and `take_error` was not called yet."""
        return self._error is not None

    def take_error(self) -> TarantellaError | None:
        """Why a checkpoint could not be written, once."""
        error, self._error = self._error, None
        return error


def _remedy(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "see to it that nothing else removes files of the folder"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return "make room, or use another folder" if full else "use another folder"


class SharedWriter:
    """The writers of all ranks: they learn together whether one is busy, and all raise the error of any.

    Args:
        path: of the folder.
        folder: the folder on the master, None on the other ranks.
        in_parts: whether each rank writes its part.
        warn: as for `Writer`.
    """

    def __init__(self, path: str, folder: Folder | None, in_parts: bool, warn: Callable[[str], None]) -> None:
        self._path, self._folder = Path(path), folder
        self._writer = Writer(warn) if in_parts or folder is not None else None

    def is_free(self) -> bool:
        """Whether nothing is being written. Collective.

        Raises:
            TarantellaError: the last checkpoint could not be written.
        """
        status = self._status()
        if status == _FAILED and self._writer is not None:
            self._writer.given_up.set()
            self._writer.wait()
        if status == _FAILED:
            collectives.agree_on_failure(self._writer.take_error() if self._writer is not None else None)
        return status == _FREE

    def wait(self) -> None:
        """Returns when nothing is being written any more. Collective: the ranks talk meanwhile, so that no deadline passes.

        Raises:
            TarantellaError: the last checkpoint could not be written.
        """
        while not self.is_free():
            if self._writer is not None:
                self._writer.wait(0.5)

    def wait_here(self) -> None:
        """Returns when this rank does not write any more. It does not wait long for parts of ranks that may have failed."""
        if self._writer is not None and not self._writer.wait(_GRACE):
            self._writer.given_up.set()
            self._writer.wait()

    def begin(self, step: int, tree: Callable[[], dict[str, Any]]) -> None:
        """Begins to write what `tree` returns; nothing may be being written. Its arrays must not change any more. Collective.

        Raises:
            What `tree` raises on the master, on all ranks.
        """
        failure = None
        if self._folder is not None and self._writer is not None:
            try:
                folder, content = self._folder, tree()
                self._writer.begin(folder.place(step), lambda: folder.write(step, content))
            except Exception as error:
                failure = error
        collectives.agree_on_failure(failure)

    def begin_in_parts(self, step: int, tree: Callable[[], dict[str, Any]], values: Sequence[NDArray[Any]]) -> None:
        """As `begin`: this rank writes its values, and the master what `tree` returns, when all parts are there. Collective."""
        failure, name, content = None, "", {}
        if self._folder is not None:
            try:
                name, content = self._folder.begin_parts(step).name, tree()
            except Exception as error:
                failure = error
        collectives.agree_on_failure(failure)
        own = self._path / collectives.broadcast_object(name)
        assert self._writer is not None
        self._writer.given_up.clear()
        self._writer.begin(own, lambda: self._write_part(own, step, content, values))

    def _write_part(self, own: Path, step: int, content: dict[str, Any], values: Sequence[NDArray[Any]]) -> None:
        parts.write(own, runtime.get_rank(), values)
        if self._folder is not None and self._writer is not None:
            checksums = parts.wait_for(own, runtime.get_size(), self._writer.given_up, settings.timeout())
            self._folder.write(step, {**content, "parts": {"folder": own.name, "checksums": checksums}})

    def _status(self) -> int:
        status = _FREE
        if self._writer is not None and not self._writer.wait(0):
            status = _BUSY
        elif self._writer is not None and self._writer.has_failed:
            status = _FAILED
        return int(collectives.all_reduce(np.array([status], np.int64), "max")[0])
