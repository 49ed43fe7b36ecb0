"""A thread that writes checkpoints while training goes on, one at a time, and the view of it that all ranks share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tarantella import collectives
from tarantella.errors import TarantellaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tarantella.keras.checkpoint.folder import Folder

_FREE, _BUSY, _FAILED = range(3)


class Writer:
    """Writes into a folder, on the master.

    Args:
        folder: the folder of the checkpoints.
        warn: is called with a message as soon as a checkpoint could not be written.
    """

    def __init__(self, folder: Folder, warn: Callable[[str], None]) -> None:
        self._folder, self._warn = folder, warn
        self._thread: threading.Thread | None = None
        self._error: TarantellaError | None = None

    def begin(self, step: int, tree: dict[str, Any]) -> None:
        """Begins to write a checkpoint; the one before must be done. The arrays must not change any more."""
        self._thread = threading.Thread(target=self._write, args=(step, tree), name="tarantella-checkpoint")
        self._thread.start()

    def _write(self, step: int, tree: dict[str, Any]) -> None:
        try:
            self._folder.write(step, tree)
        except Exception as error:
            text = (
                f"cannot write the checkpoint {self._folder.place(step)} ({type(error).__name__}: {error}): the earlier ones "
                "are unharmed; make room, or use another folder, and start the script again"
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


class SharedWriter:
    """The master's `Writer` as all ranks know it: they learn together whether it is busy, and all raise its error.

    Args:
        writer: the writer on the master, None on the other ranks.
    """

    def __init__(self, writer: Writer | None) -> None:
        self._writer = writer

    def is_free(self) -> bool:
        """Whether nothing is being written. Collective.

        Raises:
            TarantellaError: the last checkpoint could not be written.
        """
        status = self._status()
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
        """Returns when this rank does not write any more."""
        if self._writer is not None:
            self._writer.wait()

    def begin(self, step: int, tree: Callable[[], dict[str, Any]]) -> None:
        """Begins to write what `tree` returns; nothing may be being written. Collective.

        Raises:
            What `tree` raises on the master, on all ranks.
        """
        failure = None
        if self._writer is not None:
            try:
                self._writer.begin(step, tree())
            except Exception as error:
                failure = error
        collectives.agree_on_failure(failure)

    def _status(self) -> int:
        status = _FREE
        if self._writer is not None and not self._writer.wait(0):
            status = _BUSY
        elif self._writer is not None and self._writer.has_failed:
            status = _FAILED
        return int(collectives.broadcast(np.array([status], np.int64))[0])
