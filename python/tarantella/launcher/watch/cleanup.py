"""`tarantella --cleanup`: ends left-over processes of jobs, on this machine or on all hosts of a hostfile.

A left-over process belongs to this user, was a rank or was started by one, and its launcher has gone. It is found by the mark
in its environment (`mark.py`), never by its name. On other hosts mpirun starts this module (`own_program.py`).
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tarantella.launcher.base.mark import is_left_over, mark_of, running, state
from tarantella.launcher.base.words import counted
from tarantella.launcher.show.output import Console
from tarantella.variables import JOB

KILL_TIMEOUT = 3.0
"""Seconds that processes get to end."""
SHOWN = 60
"""How many characters of a command are shown."""


def left_over() -> list[int]:
    """The left-over processes; never this one or its ancestors."""
    return _processes(_is_left_over)


def end_job(job: str) -> list[int]:
    """Kills what still runs of a job whose ranks have ended. Returns those that do not end."""

    def is_of_job(pid: int) -> bool:
        return mark_of(pid, JOB) == job

    found = _processes(is_of_job)
    for pid in found:
        _end(pid, signal.SIGKILL, is_of_job)
    return _wait_for_end(found)


def _processes(wanted: Callable[[int], bool]) -> list[int]:
    own = _ancestors(os.getpid())
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid not in own and running(pid) and wanted(pid)]


def _wait_for_end(pids: Sequence[int]) -> list[int]:
    """Those that still run after KILL_TIMEOUT."""
    deadline = time.monotonic() + KILL_TIMEOUT
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid in pids if running(pid)]


def clean_up(console: Console, *, force: bool, dry_run: bool) -> int:
    """Ends left-over processes, with SIGKILL if force, and says which. Returns 1 if one did not end, else 0."""
    host = socket.gethostname()
    found = left_over()
    if not found:
        console.message(f"nothing is left over on {host}")
        return 0
    shown = ", ".join(f"{pid} ({_command(pid)})" for pid in found)
    if dry_run:
        console.message(f"{counted(len(found), 'left-over process')} on {host} would be ended: {shown}")
        return 0
    for pid in found:
        _end(pid, signal.SIGKILL if force else signal.SIGTERM, _is_left_over)
    remaining = _wait_for_end(found)
    console.message(f"{counted(len(found), 'left-over process')} on {host} signalled to end: {shown}")
    if remaining:
        hint = "" if force else "; use --cleanup --force"
        console.message(f"still running on {host}: {', '.join(map(str, remaining))}{hint}")
    return 1 if remaining else 0


def main(argv: list[str]) -> int:
    """Cleans up this machine for a cleanup of several hosts. With `--job NAME` it ends that job only, silently."""
    if argv[:1] == ["--job"]:
        return 1 if end_job(argv[1]) else 0
    console = Console()
    code = clean_up(console, force="--force" in argv, dry_run="--dry-run" in argv)
    console.drain()
    return code


def _is_left_over(pid: int) -> bool:
    mark = mark_of(pid)
    return mark is not None and is_left_over(mark)


def _end(pid: int, number: signal.Signals, wanted: Callable[[int], bool]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        process = os.pidfd_open(pid)  # from now on the pid cannot be reused unnoticed
        try:
            if wanted(pid):
                signal.pidfd_send_signal(process, number)
                signal.pidfd_send_signal(process, signal.SIGCONT)  # a stopped process does not handle signals
        finally:
            os.close(process)


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 0 and pid not in found:
        found.add(pid)
        pid = int((state(pid) or ["", "0"])[1])
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:SHOWN]
    except OSError:
        return "gone"
