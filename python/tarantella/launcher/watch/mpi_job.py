"""A job on several hosts: mpirun starts the ranks, this starts mpirun, passes signals on and stays until it has ended.

mpirun waits for all hosts, one that has gone included, for minutes. So what it says is read on its way to the terminal: once
a rank has failed, it gets some seconds to end the others.
"""

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tarantella.launcher.base.signals import ASKING, SignalPipe
from tarantella.launcher.base.words import counted
from tarantella.launcher.show.output import STDERR, STDOUT, Console, Stream, pause_or_resume
from tarantella.launcher.show.shown_output import ends_like
from tarantella.launcher.show.status_socket import StatusSocket
from tarantella.launcher.start.process import end_with_parent
from tarantella.launcher.start.results import JobResult
from tarantella.launcher.watch.rank_notices import RankNotices

CANNOT_START = 126
GRACE = 8.0
"""Seconds in which mpirun may end its ranks after it was asked to, or after one has failed."""
LONGEST_SLEEP = 1.0
FAILURE = re.compile(
    rb"^(tarantella: rank \d+ \(pid \d+ on "
    rb"|a non-zero exit code\. Per user-direction, the job has been aborted"
    rb"|mpirun noticed that process rank )",
    re.MULTILINE,
)
"""Messages that a rank has failed: from the launcher's process beside the rank, and from Open MPI."""
KILLED = re.compile(
    rb"^(?:tarantella: rank (\d+) \(pid \d+ on [^)]*\) was killed by |mpirun noticed that process rank (\d+) )", re.MULTILINE
)
"""Which rank was killed, not counting ranks that ended because of others."""
REASON = re.compile(rb"^tarantella: (rank \d+ \(pid \d+ on [^\n]*)\n", re.MULTILINE)
MAX_LINE_START = 200
"""So many bytes of an incomplete line are searched again together with the next bytes."""


@dataclass(frozen=True)
class Saving:
    """The time that ranks get to save after SIGTERM, and the signal by which mpirun tells their processes beside them of it."""

    signal: signal.Signals
    seconds: float
    all_started: Callable[[], bool]
    """Whether these processes are there."""


class MpiJob:
    """One mpirun, from its start to its end."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        ranks: int,
        console: Console,
        *,
        timeout: float = float("inf"),
        describe: Callable[[], dict[str, Any]] | None = None,
        notices: RankNotices | None = None,
        saving: Saving | None = None,
    ) -> None:
        """timeout: seconds after which it is killed. describe: what it tells of the job if it is asked for its status.

        notices: of the ranks, if they give any. saving: what ranks get after SIGTERM.
        """
        self._command = command
        self._environment = environment
        self._ranks = ranks
        self._console = console
        self._interrupted = 0
        self._given_up = False
        self._grace = timeout
        self._deadline = time.monotonic() + timeout
        self._failed = False
        self._partial_line = b""
        self._killed: set[int] = set()
        self._reason = ""
        self._describe = describe
        self._notices = notices
        self._saving = saving
        self._saving_until = float("inf")

    def run(self) -> JobResult:
        """Its code is what mpirun returns, or 128 + the number of the signal that ended the job."""
        with SignalPipe() as signals, selectors.PollSelector() as selector:
            shown, stdout = ends_like(STDOUT)
            try:
                mpirun = subprocess.Popen(
                    self._command,
                    env=self._environment,
                    stdout=stdout,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    # it ends its ranks when the launcher dies without a chance to say so
                    preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
                )
            except (OSError, subprocess.SubprocessError) as error:
                self._console.announce(f"cannot start {self._command[0]!r}: {error}")
                return JobResult(CANNOT_START, started=False)
            finally:
                if stdout is not None:
                    os.close(stdout)
            assert mpirun.stderr is not None
            streams = [Stream(os.dup(mpirun.stderr.fileno()), self._take_output, pausable=True, as_is=True)]
            mpirun.stderr.close()
            if shown is not None:
                streams.append(Stream(shown, partial(self._console.write, STDOUT), pausable=True, as_is=True))
            selector.register(signals.descriptor, selectors.EVENT_READ, lambda: self._on_signals(mpirun, signals.read()))
            status = StatusSocket(os.getppid(), self._describe, selector) if self._describe else None
            try:
                while not _ended(mpirun):
                    pause_or_resume(streams, self._console.full, selector)
                    self._console.watch(selector)
                    for key, _ in selector.select(LONGEST_SLEEP):
                        key.data()
                    self._look_at_notices(mpirun)
                    if time.monotonic() > self._saving_until:
                        self._end(mpirun)
                    if time.monotonic() > self._deadline:
                        self._give_up(mpirun)
            finally:
                if status is not None:
                    status.close()
                _kill_group(mpirun)  # before it is reaped: until then its number cannot be another's
                code = mpirun.wait()
            self._console.drain()  # makes room for the last output
            for stream in streams:
                stream.finish()
            self._finish_notices(code)
        self._console.drain()
        if self._interrupted:
            return JobResult(128 + self._interrupted, interrupted=True)
        if self._given_up:
            code = 0 if self._all_ended_well() else 1
        code = 128 - code if code < 0 else code
        return JobResult(code, self._reason or f"mpirun returned {code}", killed=frozenset(self._killed))

    def _take_output(self, data: bytes) -> None:
        """Shows the output unchanged, and looks for messages about failures."""
        if self._notices is not None:
            data = self._notices.taken_out(data)
        self._console.write(STDERR, data)
        text = self._partial_line + data
        self._partial_line = text.rpartition(b"\n")[2][:MAX_LINE_START]
        self._look_for_failures(text)

    def _look_for_failures(self, text: bytes) -> None:
        """Notes the failures that the output reports."""
        self._killed |= {int(found[1] or found[2]) for found in KILLED.finditer(text)}
        reasons = [self._reason, *(found.decode(errors="replace") for found in REASON.findall(text))]
        # a killed rank is the cause, though the message of a rank that ended because of it may come first
        self._reason = next((one for one in reasons if " was killed by " in one), next(filter(None, reasons), ""))
        if not self._failed and FAILURE.search(text):
            self._failed = True
            self._end_soon()

    def _finish_notices(self, code: int) -> None:
        """The last output, and one line of ours after mpirun's pages if no rank was started, as on hosts out of reach."""
        if self._notices is None:
            return
        self._console.write(STDERR, self._notices.rest())
        ended = code == 0 or self._interrupted or self._given_up
        if not ended and self._notices.none_started:
            self._reason = f"mpirun has started no rank (it returned {code})"
            self._console.message(
                f"{self._reason}: each host must let you in by `ssh HOST true` without a password, and have this Python and "
                "MPI under the same path (`tarantella doctor` with the same hosts checks that)"
            )

    def _all_ended_well(self) -> bool:
        return self._notices is not None and self._notices.all_ended and not self._failed

    def _look_at_notices(self, mpirun: subprocess.Popen[bytes]) -> None:
        """An mpirun that hangs before it has started all ranks, or when all have ended, is ended."""
        if self._notices is None or self._given_up or self._interrupted or self._failed:
            return
        if self._notices.all_ended:
            self._end_soon()
        elif late := self._notices.late():
            self._reason = late
            self._console.message(f"{late}, and mpirun is killed")
            self._given_up = True
            _kill_group(mpirun)

    def _on_signals(self, mpirun: subprocess.Popen[bytes], numbers: Sequence[int]) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            if number == ASKING:
                self._ask(mpirun)
                continue
            if not self._interrupted:
                self._interrupted = number
                self._console.message(f"interrupted; ending {counted(self._ranks, 'rank')}")
                if number != signal.SIGINT and self._saving is not None and self._saving.all_started():
                    self._saving_until = time.monotonic() + self._saving.seconds
                    os.kill(mpirun.pid, self._saving.signal)
                else:
                    self._end(mpirun)
            elif number == signal.SIGINT:  # asked again: do not wait any longer
                self._deadline = 0

    def _end(self, mpirun: subprocess.Popen[bytes]) -> None:
        self._saving_until = float("inf")
        self._end_soon()
        with suppress(ProcessLookupError):
            os.kill(mpirun.pid, signal.SIGTERM)  # to mpirun alone: it needs its ssh connections to end the ranks

    def _ask(self, mpirun: subprocess.Popen[bytes]) -> None:
        """The processes beside the ranks print what these do: Open MPI passes the signal on to them."""
        self._console.message(f"asking {counted(self._ranks, 'rank')} on all hosts")
        with suppress(ProcessLookupError):
            os.kill(mpirun.pid, ASKING)

    def _end_soon(self) -> None:
        if time.monotonic() + GRACE < self._deadline:
            self._grace = GRACE
            self._deadline = time.monotonic() + GRACE

    def _give_up(self, mpirun: subprocess.Popen[bytes]) -> None:
        if not self._given_up and self._deadline > 0 and self._all_ended_well():
            self._console.message(f"all ranks have ended well, but mpirun has not within {self._grace:g} s and is killed")
        elif not self._given_up and self._deadline > 0:
            self._console.message(
                f"mpirun has not ended within {self._grace:g} s and is killed; ranks on hosts that it does not reach end by "
                "themselves when they have missed the others for TNT_TIMEOUT"
            )
        self._given_up = True
        _kill_group(mpirun)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
