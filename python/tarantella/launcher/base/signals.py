"""Signals as bytes in a pipe, so that one selector waits for them and for everything else."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask the launcher to end the job."""
ASKING = signal.SIGUSR1
"""Asks it what the ranks do."""
SAVING = signal.SIGUSR2
"""SIGTERM of a job on several hosts: mpirun passes it on to the processes beside the ranks, and kills no rank soon after."""


class SignalPipe:
    """A context in which SIGCHLD, ASKING, the ending signals and those that are named arrive at `descriptor`.

    An ending signal that was ignored when the launcher started stays ignored: nohup relies on that.
    """

    def __init__(self, *more: signal.Signals) -> None:
        self._more = more

    def __enter__(self) -> "SignalPipe":
        self.descriptor, self._write = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._write, False)
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before: dict[signal.Signals, Any] = {}
        for number in (signal.SIGCHLD, ASKING, *ENDING, *self._more):
            if number not in ENDING or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _noted)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self.descriptor)
        os.close(self._write)

    def read(self) -> list[int]:
        """The signals that have arrived, in their order."""
        try:
            return list(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return []


def survive_asking(*more: signal.Signals) -> None:
    """From now on ASKING, and those that are named, do nothing outside of a `SignalPipe`, where they would end the process."""
    for number in (ASKING, *more):
        signal.signal(number, _noted)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """Does nothing: the interpreter has written the number to the pipe."""
