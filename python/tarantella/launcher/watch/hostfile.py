"""The hostfile of an elastic job, which may change while the job runs."""

import os
import time
from contextlib import suppress

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host, read_hostfile

LOOKS_EVERY = 1.0
"""Seconds between two looks at it."""


class Hostfile:
    """Tells what the file names whenever that has changed.

    Args:
        path: of the file.
        per_node: as for `read_hostfile`.
        hosts: which it named when the job's options were read.
    """

    def __init__(self, path: str, per_node: int | None, hosts: tuple[Host, ...]) -> None:
        self._path, self._per_node = path, per_node
        self._next = 0.0
        self._seen: object = ()  # what told versions apart at the last look
        version = self._version()
        self._read = version if self._names(hosts) else ()  # the same of the version that was read last

    def change(self) -> tuple[Host, ...] | None:
        """The hosts in a version that was not read before; None if there is none. To be called often: it rarely looks.

        Raises:
            UsageError: that version makes no sense.
        """
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + LOOKS_EVERY
        before, self._seen = self._seen, self._version()
        if self._seen == self._read or self._seen != before:  # a version that is new at this look may not be whole yet
            return None
        self._read = self._seen
        return self._hosts()

    def _hosts(self) -> tuple[Host, ...]:
        if os.path.exists(self._path) and not os.path.isfile(self._path):  # nobody may ever write to a pipe
            raise UsageError(f"--hostfile: {self._path!r} is no file that can be read again")
        return read_hostfile(self._path, self._per_node)

    def _names(self, hosts: tuple[Host, ...]) -> bool:
        with suppress(UsageError):
            return self._hosts() == hosts
        return False

    def _version(self) -> object:
        try:
            found = os.stat(self._path)
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_mtime_ns, found.st_size
