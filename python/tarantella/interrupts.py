"""Ctrl-C of a job: its ranks end without a word, as the launcher has said the one line that there is to say.

Else every rank would show the frames in which it happened to be, those of Keras and TensorFlow mostly. With
TNT_LOG_LEVEL=DEBUG the ranks show them: they tell where a job hangs.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from tarantella import settings, variables


def install() -> None:
    """Makes uncaught interrupts silent in a rank of our launcher; elsewhere nothing."""
    if variables.REPORT_FD not in os.environ:
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        # the text: of the error of a rank that waited for one which was interrupted, or of an interrupt inside of TensorFlow
        interrupted = issubclass(kind, KeyboardInterrupt) or KeyboardInterrupt.__name__ in str(value)
        if not interrupted or settings.log_level() == "DEBUG":
            previous(kind, value, traceback)

    sys.excepthook = hook
