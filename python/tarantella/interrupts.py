"""Ctrl-C of a job: its ranks end without a word, as the launcher has said the one line that there is to say.

Else every rank would show the frames in which it happened to be, those of Keras and TensorFlow mostly. With
TNT_LOG_LEVEL=DEBUG the ranks show them: they tell where a job hangs.

Nothing of this package is imported here: a rank's interpreter runs this file when it starts (`start/rank/sitecustomize.py`).
"""

from __future__ import annotations

import os
import sys
from types import TracebackType


def install() -> None:
    """Makes uncaught interrupts silent in this process, a rank of our launcher."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        # the text: of the error of a rank that waited for one which was interrupted, or of an interrupt inside of TensorFlow
        interrupted = issubclass(kind, KeyboardInterrupt) or KeyboardInterrupt.__name__ in str(value)
        if not interrupted or os.environ.get("TNT_LOG_LEVEL", "").upper() == "DEBUG":
            previous(kind, value, traceback)

    sys.excepthook = hook
