"""A job on several hosts: mpirun starts the ranks, this starts mpirun, passes signals on and stays until it has ended."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tarantella.launcher.output import Console
from tarantella.launcher.process import PR_SET_PDEATHSIG
from tarantella.launcher.signals import SignalPipe
from tarantella.launcher.threads import counted

CANNOT_START = 126
GRACE = 8.0
"""Seconds in which mpirun may end its ranks after it was asked to; then it is killed, and ranks end as they miss it."""
SAFETY_NET = 1.0


def run_mpirun(command: Sequence[str], environment: Mapping[str, str], ranks: int, console: Console) -> int:
    """Returns what mpirun does, or 128 + the number of the signal that ended the job."""
    with SignalPipe() as signals:
        try:
            mpirun = subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=_preparation())
        except (OSError, subprocess.SubprocessError) as error:
            console.say(f"cannot start {command[0]!r}: {error}")
            console.drain()
            return CANNOT_START
        interrupted, patience = 0, float("inf")
        try:
            while not _ended(mpirun):
                select.select([signals.descriptor], [], [], SAFETY_NET)
                for number in signals.read():
                    if number == signal.SIGCHLD:
                        continue
                    if not interrupted:
                        interrupted, patience = number, time.monotonic() + GRACE
                        console.say(f"interrupted; ending {counted(ranks, 'rank')}")
                        console.drain()
                        _signal(mpirun, signal.SIGTERM)
                    elif number == signal.SIGINT:  # asked again: no more patience
                        patience = 0
                if time.monotonic() > patience:
                    _kill_group(mpirun)
        finally:
            _kill_group(mpirun)  # before it is reaped: until then its number cannot be another's
            code = mpirun.wait()
    if interrupted:
        return 128 + interrupted
    return 128 - code if code < 0 else code


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)  # to mpirun alone: it needs its ssh connections to end the others


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _preparation() -> Callable[[], None]:
    """What mpirun does between fork and exec: it ends its ranks when the launcher dies without a chance to say so."""
    libc = ctypes.CDLL(None, use_errno=True)
    launcher = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != launcher:
            os._exit(1)

    return prepare
