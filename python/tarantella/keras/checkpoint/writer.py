"""A thread that writes checkpoints beside training, one at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from tarantella.errors import TarantellaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tarantella.keras.checkpoint.folder import Folder


class Writer:
    """Writes into a folder; only the master has one.

    Args:
        folder: where.
        warn: is told at once, in a sentence, when a checkpoint could not be written.
    """

    def __init__(self, folder: Folder, warn: Callable[[str], None]) -> None:
        self._folder, self._warn = folder, warn
        self._thread: threading.Thread | None = None
        self._error: TarantellaError | None = None

    def begin(self, step: int, tree: dict[str, Any]) -> None:
        """Has a checkpoint written; the one before must be done. The arrays must not be changed any more."""
        self._thread = threading.Thread(target=self._write, args=(step, tree), name="tarantella-checkpoint")
        self._thread.start()

    def _write(self, step: int, tree: dict[str, Any]) -> None:
        try:
            self._folder.write(step, tree)
        except Exception as error:
            text = (
                f"cannot write the checkpoint {self._folder.place(step)} ({type(error).__name__}: {error}): those before are "
                "as they were; make room, or use another folder, and start the script again"
            )
            self._warn(text)
            self._error = TarantellaError(text)
            self._error.__cause__ = error

    def wait(self, seconds: float | None = None) -> bool:
        """Whether nothing is being written any more, after so many seconds at most (None: as long as it takes)."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    @property
    def has_failed(self) -> bool:
        """Whether a checkpoint could not be written, and `take_error` was not asked yet."""
        return self._error is not None

    def take_error(self) -> TarantellaError | None:
        """Why a checkpoint could not be written, once."""
        error, self._error = self._error, None
        return error
