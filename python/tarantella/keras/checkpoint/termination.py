"""SIGTERM while `fit` runs, as schedulers send it before they kill: the ranks agree on a step, save after it, and exit."""

import signal
import threading
from typing import Any

EXIT_CODE = 128 + signal.SIGTERM
"""What a process returns that has saved and ended because of SIGTERM, and what a shell says of one that it has killed."""


class TerminationNotice:
    """Notes a SIGTERM in the place of its default action, from `begin` to `end`.

    A handler of the script's stays. So does the default action outside of the main thread, where Python allows no handlers.
    """

    def __init__(self) -> None:
        self.received = False
        self._noting = False

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._note)
            self._noting = True

    def end(self) -> None:
        if self._noting:
            self._noting = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def take_effect(self) -> None:
        """Ends the process, as the signal would have done, if there was one that nobody has followed so far."""
        if self.received:
            signal.raise_signal(signal.SIGTERM)

    def _note(self, _number: int, _frame: Any) -> None:
        self.received = True
