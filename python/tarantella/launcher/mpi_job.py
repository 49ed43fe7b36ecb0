"""A job on several hosts: mpirun starts the ranks, this starts mpirun, passes signals on and stays until it has ended.

mpirun waits for all hosts, one that has gone included, for minutes. So what it says is read on its way to the terminal: once
a rank has failed, it gets some seconds to end the others.
"""

from __future__ import annotations

import ctypes
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tarantella.launcher.output import STDERR, Console
from tarantella.launcher.process import PR_SET_PDEATHSIG
from tarantella.launcher.signals import SignalPipe
from tarantella.launcher.text import counted
from tarantella.launcher.verdict import Ended

CANNOT_START = 126
GRACE = 8.0
"""Seconds in which mpirun may end its ranks after it was asked to, or after one has failed."""
SAFETY_NET = 1.0
FAILURE = re.compile(
    rb"^(tarantella: rank \d+ \(pid \d+ on "
    rb"|a non-zero exit code\. Per user-direction, the job has been aborted"
    rb"|mpirun noticed that process rank )",
    re.MULTILINE,
)
"""What is said when a rank has failed: by the part of the launcher that looks after it, and by Open MPI."""
KILLED = re.compile(
    rb"^(?:tarantella: rank (\d+) \(pid \d+ on [^)]*\) was killed by |mpirun noticed that process rank (\d+) )", re.MULTILINE
)
"""Which rank was, of itself: that it failed as others did is not said."""
WHY = re.compile(rb"^tarantella: (rank \d+ \(pid \d+ on [^\n]*)\n", re.MULTILINE)
PIECE = 64 * 1024
LONGEST_START = 200
"""Of a line that is not complete so much is looked at again with what follows."""


class MpiJob:
    """One mpirun, from its start to its end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        ranks: int,
        console: Console,
        *,
        within: float = float("inf"),
    ) -> None:
        """within: seconds after which it is killed."""
        self._command = command
        self._environment = environment
        self._ranks = ranks
        self._console = console
        self._interrupted = 0
        self._given_up = False
        self._allowed = within
        self._patience = time.monotonic() + within
        self._failed = False
        self._last = b""
        self._killed: set[int] = set()
        self._why = ""

    def run(self) -> Ended:
        """Its code is what mpirun returns, or 128 + the number of the signal that ended the job."""
        with SignalPipe() as signals, selectors.PollSelector() as selector:
            try:
                mpirun = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    preexec_fn=_preparation(),
                )
            except (OSError, subprocess.SubprocessError) as error:
                self._console.say(f"cannot start {self._command[0]!r}: {error}")
                self._console.drain()
                return Ended(CANNOT_START, started=False)
            assert mpirun.stderr is not None
            words = mpirun.stderr.fileno()
            os.set_blocking(words, False)
            selector.register(signals.descriptor, selectors.EVENT_READ, lambda: self._on_signals(mpirun, signals.read()))
            try:
                while not _ended(mpirun):
                    _watch(selector, words, None if self._console.full else lambda: self._relay(selector, words))
                    self._console.watch(selector)
                    for key, _ in selector.select(SAFETY_NET):
                        key.data()
                    if time.monotonic() > self._patience:
                        self._give_up(mpirun)
            finally:
                _kill_group(mpirun)  # before it is reaped: until then its number cannot be another's
                code = mpirun.wait()
            self._console.drain()  # makes room for the last words
            self._relay(selector, words)
            mpirun.stderr.close()
        self._console.drain()
        if self._interrupted:
            return Ended(128 + self._interrupted, interrupted=True)
        code = 1 if self._given_up else 128 - code if code < 0 else code
        return Ended(code, self._why or f"mpirun returned {code}", lost=frozenset(self._killed))

    def _relay(self, selector: selectors.BaseSelector, words: int) -> None:
        """Shows what has been said, as it is, and looks for what tells of a failure."""
        with suppress(BlockingIOError):
            while not self._console.full:
                piece = os.read(words, PIECE)
                if not piece:
                    _watch(selector, words, None)
                    return
                self._console.write(STDERR, piece)
                said = self._last + piece
                self._last = said.rpartition(b"\n")[2][:LONGEST_START]
                self._note(said)

    def _note(self, said: bytes) -> None:
        """What it tells of failures."""
        self._killed |= {int(found[1] or found[2]) for found in KILLED.finditer(said)}
        whys = [self._why, *(why.decode(errors="replace") for why in WHY.findall(said))]
        # a rank that was killed is to blame, though another that ended for it may be heard first
        self._why = next((why for why in whys if " was killed by " in why), next(filter(None, whys), ""))
        if not self._failed and FAILURE.search(said):
            self._failed = True
            self._end_soon()

    def _on_signals(self, mpirun: subprocess.Popen[bytes], numbers: Sequence[int]) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            if not self._interrupted:
                self._interrupted = number
                self._end_soon()
                self._console.say(f"interrupted; ending {counted(self._ranks, 'rank')}")
                with suppress(ProcessLookupError):
                    os.kill(mpirun.pid, signal.SIGTERM)  # it alone: it needs its ssh connections to end the others
            elif number == signal.SIGINT:  # asked again: no more patience
                self._patience = 0

    def _end_soon(self) -> None:
        if time.monotonic() + GRACE < self._patience:
            self._allowed = GRACE
            self._patience = time.monotonic() + GRACE

    def _give_up(self, mpirun: subprocess.Popen[bytes]) -> None:
        if not self._given_up and self._patience > 0:
            self._console.say(
                f"mpirun has not ended within {self._allowed:g} s and is killed; ranks on hosts that it does not reach end by "
                "themselves when they have missed the others for TNT_TIMEOUT"
            )
        self._given_up = True
        _kill_group(mpirun)


def _watch(selector: selectors.BaseSelector, descriptor: int, callback: Callable[[], None] | None) -> None:
    if descriptor in selector.get_map():
        selector.unregister(descriptor)
    if callback is not None:
        selector.register(descriptor, selectors.EVENT_READ, callback)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _preparation() -> Callable[[], None]:
    """What mpirun does between fork and exec; it ends its ranks when the launcher dies without a chance to say so."""
    libc = ctypes.CDLL(None, use_errno=True)
    launcher = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != launcher:
            os._exit(1)

    return prepare
