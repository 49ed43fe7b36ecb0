"""`tarantella --cleanup`: ends what jobs have left behind, on this machine or on all hosts of a hostfile.

A left-over process is one of this user's that a rank was, or has started, and whose launcher has gone. It is found by the mark
in its environment (`mark.py`), never by its name. On other hosts mpirun starts this module as
`python -m tarantella.launcher.cleanup`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tarantella.launcher.mark import is_left_over, mark_of, running, state
from tarantella.launcher.output import Console
from tarantella.launcher.text import counted
from tarantella.variables import JOB

PATIENCE = 3.0
"""Seconds in which processes have to end."""
SHOWN = 60
"""So much of a command is shown."""


def left_over() -> list[int]:
    """The processes that jobs have left behind; never this one, or what started it."""
    return _processes(_is_left_over)


def end_job(job: str) -> list[int]:
    """Kills what still runs of a job whose ranks have ended. Returns those that do not end."""

    def is_of_job(pid: int) -> bool:
        return mark_of(pid, JOB) == job

    found = _processes(is_of_job)
    for pid in found:
        _end(pid, signal.SIGKILL, is_of_job)
    return _staying(found)


def _processes(wanted: Callable[[int], bool]) -> list[int]:
    ours = _ancestors(os.getpid())
    pids = sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid not in ours and running(pid) and wanted(pid)]


def _staying(pids: Sequence[int]) -> list[int]:
    """Those that still run after some time."""
    deadline = time.monotonic() + PATIENCE
    while any(map(running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [pid for pid in pids if running(pid)]


def clean_up(console: Console, *, force: bool, dry_run: bool) -> int:
    """Ends left-over processes, with SIGKILL if force, and says which. Returns 1 if one did not end, else 0."""
    host = socket.gethostname()
    found = left_over()
    if not found:
        console.say(f"nothing is left over on {host}")
        return 0
    shown = ", ".join(f"{pid} ({_command(pid)})" for pid in found)
    if dry_run:
        console.say(f"{counted(len(found), 'left-over process')} on {host} would be ended: {shown}")
        return 0
    for pid in found:
        _end(pid, signal.SIGKILL if force else signal.SIGTERM, _is_left_over)
    staying = _staying(found)
    console.say(f"{counted(len(found), 'left-over process')} on {host} told to end: {shown}")
    if staying:
        console.say(f"still running on {host}: {', '.join(map(str, staying))}{'' if force else '; use --cleanup --force'}")
    return 1 if staying else 0


def main(argv: list[str]) -> int:
    """Cleans up this machine, as a part of cleaning up several. With `--job NAME` it ends that job alone, and says nothing."""
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
        process = os.pidfd_open(pid)  # from now on the number cannot become another's unseen
        try:
            if wanted(pid):
                signal.pidfd_send_signal(process, number)
                signal.pidfd_send_signal(process, signal.SIGCONT)  # one that was stopped could not heed it
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
