"""The pipes and terminals through which the launcher passes on what a process writes, as it is.

The process never has the launcher's own output: where that cannot be written, as on a full disk, or has lost its reader, as of
`| head`, the training would end with the write. Where the output is a terminal, the process gets a terminal, too: progress bars
redraw their line only there.
"""

import fcntl
import os
import termios
import tty
from contextlib import suppress

from tarantella.launcher.show.output import STDERR, STDOUT

WINDOW_SIZE = 8
"""Bytes of a `struct winsize`."""


def shown_output() -> tuple[tuple[int | None, int | None], tuple[int | None, int | None]]:
    """The ends to read and to write of stdout and of stderr. Raises OSError.

    The end to read of stderr is None where both go to the same file: the order of what is written to them stays then. None for
    both ends: the process must have the launcher's own.
    """
    out = ends_like(STDOUT)
    return out, (None, out[1]) if _same_file() else ends_like(STDERR)


def copy_window_size(terminal: int, descriptor: int) -> None:
    """Makes a terminal of ours as large as the launcher's."""
    with suppress(OSError):  # it was closed
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(WINDOW_SIZE)))


def ends_like(descriptor: int) -> tuple[int | None, int | None]:
    """The ends to read and to write of a terminal if that is one, else of a pipe. None as for `shown_output`."""
    if not os.isatty(descriptor):
        return os.pipe()
    try:
        read, write = os.openpty()
    except OSError:  # the system has no terminals to give: the process writes to the launcher's
        return None, None
    tty.setraw(write)  # the launcher's terminal translates line ends, once
    copy_window_size(write, descriptor)
    return read, write


def _same_file() -> bool:
    out, err = os.fstat(STDOUT), os.fstat(STDERR)
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)
