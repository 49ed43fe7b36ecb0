"""The lock of a folder for checkpoints: two jobs would remove each other's unfinished files.

A file in the folder names the owner. The lock is the system's, on that file: it ends with the process, however that ends, and
holds between hosts where the file system passes locks on, as NFS does. Forks of the process do not have it.
"""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tarantella.errors import InvalidArgumentError

NAME = ".tarantella-lock"
WAIT = 5.0
"""Seconds for a job that is just ending, as before a restart."""
_LOOK_EVERY = 0.1

_held: dict[Path, int] = {}
"""The descriptors of the locks of this process. A lock ends when any descriptor of its file is closed."""


@dataclass(frozen=True)
class Owner:
    """Who has a folder."""

    host: str
    pid: int
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


def acquire(folder: Path, warn: Callable[[str], None], seconds: float) -> None:
    """Makes this process the owner of a folder that exists. Nothing happens if it is already.

    Raises:
        InvalidArgumentError: another process has it, and still has it after these seconds.
    """
    path, deadline = folder.resolve() / NAME, time.monotonic() + seconds
    if path in _held:
        return
    while (descriptor := _try(path, warn)) is None:
        if time.monotonic() > deadline:
            raise InvalidArgumentError(
                f"the checkpoint folder {folder} is in use by {_owner(path) or 'another process'}: give each job a folder of "
                "its own, or end that job"
            )
        time.sleep(_LOOK_EVERY)
    _held[path] = descriptor
    own = Owner(socket.gethostname(), os.getpid(), datetime.now().astimezone().isoformat(" ", "seconds"))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(vars(own)) + "\n").encode(), 0)


def release(folder: Path) -> None:
    """Gives the folder back, if this process owns it."""
    path = folder.resolve() / NAME
    descriptor = _held.pop(path, None)
    if descriptor is not None:
        if _is_file(path, descriptor):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _try(path: Path, warn: Callable[[str], None]) -> int | None:
    """A descriptor of the locked file; None while another process has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return None
    except OSError as error:
        owner = _owner(path)
        if owner is not None and owner.host == socket.gethostname() and owner.pid != os.getpid() and _runs(owner.pid):
            os.close(descriptor)
            return None
        warn(f"{path.parent} cannot be locked ({error.strerror}): see to it that no other job uses this folder for checkpoints")
        return descriptor
    if not _is_file(path, descriptor):  # its last owner has just removed it
        os.close(descriptor)
        return None
    return descriptor


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        named, opened = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    return True


def _owner(path: Path) -> Owner | None:
    try:
        found = json.loads(path.read_text())
        return Owner(str(found["host"]), int(found["pid"]), str(found["since"]))
    except (OSError, ValueError, TypeError, KeyError):  # it is being written, or was never ours
        return None
