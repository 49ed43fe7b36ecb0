"""The launcher as two processes, so that one ends the processes of the job when the other is killed.

The process that the user started, the *supervisor*, forks the launcher, passes signals on to it, and ends as it does. Both
adopt orphans (PR_SET_CHILD_SUBREAPER): what a rank has started and left behind becomes their child, even if it has a session of
its own or another environment. If the supervisor is killed, the kernel tells the launcher, which kills the ranks and all that
they have started. If the launcher is killed, the kernel kills the ranks, and the supervisor the rest.
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Container
from contextlib import suppress
from typing import NoReturn

from tarantella.launcher.base import mark
from tarantella.launcher.base.signals import ASKING, ENDING, SignalPipe, survive_asking
from tarantella.launcher.base.words import counted
from tarantella.launcher.show.output import Console
from tarantella.launcher.start.process import ExitStatus, end_with_parent
from tarantella.variables import LAUNCHER

PR_SET_CHILD_SUBREAPER = 36
KILL_TIMEOUT = 3.0
"""Seconds that killed processes get to end."""
INTERVAL = 0.005
"""Seconds between two looks at them."""

_adopter = 0
"""The process that adopts orphans. Its forks do not."""


def split(console: Console, grace: float = 0.0) -> None:
    """Forks. Returns in the launcher; the supervisor ends with it, here.

    grace: seconds that the children of a killed launcher get to end by themselves.
    """
    if os.environ.get(LAUNCHER) == mark.own_mark():  # `preload.restart_with` has started the launcher anew
        adopt()
        survive_asking()
        return
    _try_system_calls()
    supervisor = os.getpid()
    survive_asking()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (*ENDING, ASKING, signal.SIGCHLD))
    launcher = os.fork()
    adopt()
    if launcher != 0:
        _supervise(launcher, before, console, grace)
    os.setsid()  # a Ctrl-C at a terminal goes to the supervisor alone
    end_with_parent(supervisor, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _try_system_calls() -> None:
    """Raises OSError where the system refuses calls without which nobody could end the job, before anything is started."""
    os.close(os.pidfd_open(os.getpid()))
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def adopt() -> None:
    """From now on this process adopts the orphans among its descendants."""
    global _adopter
    _adopter = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_adopted(own: Container[int]) -> None:
    """Forgets adopted processes that have ended. own: children that somebody else waits for."""
    if _adopter != os.getpid():
        return
    with suppress(ChildProcessError):
        while seen := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if seen.si_pid in own:
                return
            os.waitpid(seen.si_pid, 0)


def end_adopted() -> list[int]:
    """Kills all descendants of this process, which waits for none of them, if it adopts orphans. Returns the killed ones.

    Children only are killed, as nobody else can reap them, so that their numbers are theirs. Their own become children then.
    """
    killed: list[int] = []
    if _adopter != os.getpid():
        return killed
    deadline = time.monotonic() + KILL_TIMEOUT
    while time.monotonic() < deadline:
        reap_adopted(())
        children = _children()
        if not children:
            break
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        killed += [pid for pid in children if pid not in killed]
        time.sleep(INTERVAL)
    return killed


def _children() -> list[int]:
    """The children of this process that have not ended."""
    own = str(os.getpid())
    states = {int(name): mark.state(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    return [pid for pid, fields in states.items() if fields[1:2] == [own] and fields[0] not in "ZX"]


def _supervise(launcher: int, mask: set[int], console: Console, grace: float) -> NoReturn:
    ended = os.pidfd_open(launcher)
    with SignalPipe() as signals:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        while not select.select([ended, signals.descriptor], [], [])[0].count(ended):
            for number in signals.read():
                if number == signal.SIGCHLD:
                    reap_adopted((launcher,))
                else:
                    os.kill(launcher, number)
        code = os.waitstatus_to_exitcode(os.waitpid(launcher, 0)[1])
        if code < 0:
            deadline = time.monotonic() + grace
            while time.monotonic() < deadline and _children():
                time.sleep(10 * INTERVAL)
            count = len(end_adopted())
            also = f"; {counted(count, 'process')} of the job {'was' if count == 1 else 'were'} ended" if count else ""
            console.announce(f"the launcher (pid {launcher}) {ExitStatus(signal=-code)}{also}")
    os._exit(code if code >= 0 else 128 - code)
