"""The pipe on which a rank tells the launcher why its script failed.

Its descriptor comes by the environment, which the programs that a rank starts inherit, too. In them another file may have that
number, so the environment names the pipe itself as well.
"""

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from tarantella.errors import TarantellaError, from_message
from tarantella.variables import REPORT_FD

MAX_MESSAGE = 1500
_reporter = 0
"""The process whose uncaught exceptions are reported; its forks' are not."""
_step: int | None = None
"""The step of training in which it failed."""


def install(only_if_leader: bool = False) -> None:
    """Reports an exception that ends this rank's script.

    only_if_leader: only if this is the process that the launcher has started, not a program of it, which inherits the pipe
    until the rank joins.
    """
    global _reporter
    process = os.getpid()
    if process == _reporter or REPORT_FD not in os.environ or (only_if_leader and os.getsid(0) != process):
        return
    _reporter = process
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        previous(kind, value, traceback)
        if os.getpid() == process:
            text = described(value)
            # an error of ours that comes out of a graph is inside a message of TensorFlow
            from_library = isinstance(value, TarantellaError) or from_message(text) is not None
            report("secondary" if from_library else "primary", text)

    sys.excepthook = hook


def described(error: BaseException) -> str:
    """An exception in one line, as Python's traceback ends."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@contextmanager
def step_of_failure(step: Callable[[], int | None]) -> Iterator[None]:
    """Notes the step in which the context was left by an exception. The launcher compares it with that of the last start."""
    global _step
    try:
        yield
    except Exception:
        with suppress(Exception):  # the failure itself counts, whatever state it has left behind
            _step = step()
        raise


def named(descriptor: int) -> str:
    """The name of this pipe in the environment of a rank: descriptor, device and inode."""
    status = os.fstat(descriptor)
    return f"{descriptor}:{status.st_dev}:{status.st_ino}"


def keep_from_programs() -> None:
    """The programs that this rank starts from now on do not inherit the pipe."""
    descriptor = _pipe()
    if descriptor is not None:
        fcntl.fcntl(descriptor, fcntl.F_SETFD, fcntl.FD_CLOEXEC)


def report(kind: str, message: str) -> None:
    """Tells the launcher, if there is one. kind: "primary", or "secondary" for a failure because of another rank's."""
    descriptor = _pipe()
    if descriptor is None:
        return
    line = json.dumps({"kind": kind, "message": message[:MAX_MESSAGE], "step": _step}) + "\n"
    try:
        os.write(descriptor, line.encode())
    except OSError as error:
        print(f"tarantella: cannot report the failure to the launcher: {error}", file=sys.stderr)


def _pipe() -> int | None:
    """The descriptor, if it is still the launcher's pipe."""
    name = os.environ.get(REPORT_FD, "")
    first = name.partition(":")[0]
    if not first.isdigit():
        return None
    try:
        return int(first) if named(int(first)) == name else None
    except OSError:  # closed
        return None
