"""The mark in the environment of a rank and all that it starts: it names the launcher that started it."""

import os
from pathlib import Path

from tarantella.variables import LAUNCHER


def own_mark() -> str:
    """The mark for what this process starts. A pid alone may be reused, or belong to another container."""
    return f"{os.getpid()}:{_begin(os.getpid())}:{_namespace('self')}"


def mark_of(pid: int, variable: str = LAUNCHER) -> str | None:
    """The mark in a process' environment, None if it has none or is another user's."""
    name = f"{variable}=".encode()
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.getuid():
            return None
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone meanwhile, or not to be looked at
        return None
    return next((word.removeprefix(name).decode(errors="replace") for word in words if word.startswith(name)), None)


def is_left_over(mark: str) -> bool:
    """Whether the launcher of this mark has gone. False for launchers of other containers, which cannot be seen here."""
    pid, begin, namespace = [*mark.split(":", 2), "", ""][:3]
    return namespace == _namespace("self") and pid.isdigit() and _begin(int(pid)) != begin


def running(pid: int) -> bool:
    """Whether there is such a process; a zombie does not count."""
    return (state(pid) or ["X"])[0] not in "ZX"


def is_stopped(pid: int, *, traced: bool = False) -> bool:
    """Whether a signal has stopped the process. traced: or a debugger."""
    return state(pid)[:1] in (["T"], ["t"] if traced else ["T"])


def _begin(pid: int) -> str:
    """The start time of a process in clock ticks since boot; empty if there is none."""
    return state(pid)[19] if running(pid) else ""


def state(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, the state, on; see proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _namespace(process: str) -> str:
    return os.readlink(f"/proc/{process}/ns/pid")
