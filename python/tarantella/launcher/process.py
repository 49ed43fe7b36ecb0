"""One rank's process: how it is started, signalled and found to have ended.

Every rank leads a session of its own, so that it can be ended together with all that it started, and is
tied to the launcher's life by the kernel, so that it ends even when the launcher has no chance to say so.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tarantella.launcher.errors import UsageError
from tarantella.launcher.forked import Forked, fork_rank
from tarantella.launcher.preload import Preloaded

PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """How a process ended: its exit code, or the number of the signal that killed it."""

    code: int = 0
    signal: int = 0

    @property
    def good(self) -> bool:
        return self.code == 0 and self.signal == 0

    @property
    def exit_code(self) -> int:
        """As a shell would say it."""
        return 128 + self.signal if self.signal else self.code

    def __str__(self) -> str:
        if not self.signal:
            return f"exited with code {self.code}"
        try:
            return f"was killed by {signal.Signals(self.signal).name}"
        except ValueError:  # a real-time signal has no name
            return f"was killed by signal {self.signal}"


@dataclass(frozen=True)
class Pipes:
    """The read ends of the pipes from a rank; None where it has the launcher's own, or none."""

    report: int
    stdout: int | None
    stderr: int | None


class RankProcess:
    """A started rank."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, pipes: Pipes) -> None:
        self._process = process
        self.pid = process.pid
        self.pipes = pipes

    def signal(self, number: int) -> None:
        """To the rank and all it has started. Only for a rank that has not been found to have ended."""
        with suppress(ProcessLookupError, PermissionError):  # gone, or another user's by now
            os.killpg(self.pid, number)

    def ended(self) -> Outcome | None:
        """How it ended, or None while it runs. What it has left behind in its process group is killed.

        The group is killed before the process is reaped: until then its number cannot be another's.
        """
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        return Outcome(signal=-code) if code < 0 else Outcome(code=code)


class Starter:
    """Starts the ranks of a job."""

    def __init__(
        self,
        ranks: int,
        command: Sequence[str],
        output_on_all_devices: bool,
        passed_on: Sequence[int] = (),
        prepare: Callable[[int], Callable[[], None]] | None = None,
        preloaded: Preloaded | None = None,
    ) -> None:
        """passed_on: descriptors that a rank inherits as they are. prepare: gives what else it does between fork and exec.

        preloaded: what ranks have imported, if they are forks of this process.
        """
        self._command = command
        self._passed_on = tuple(passed_on)
        self._output_on_all_devices = output_on_all_devices
        self._file_limit = _make_room(3 * ranks)
        self._prepare = prepare
        self._preloaded = preloaded

    def start(self, rank: int, environment: Callable[[str], Mapping[str, str]]) -> RankProcess:
        """Starts one rank. environment: what to set, given its report descriptor.

        Raises OSError; UsageError where it cannot be a fork; ForkedRank in a forked rank itself.
        """
        closing: list[int] = []

        def pipe() -> tuple[int, int]:
            read, write = os.pipe()  # neither is inherited by any rank unless passed on below
            closing.append(write)
            return read, write

        all_piped = self._output_on_all_devices
        report, report_write = pipe()
        stdout, stdout_write = pipe() if all_piped else (None, None if rank == 0 else subprocess.DEVNULL)
        stderr, stderr_write = pipe() if all_piped or rank != 0 else (None, None)
        pipes = Pipes(report, stdout, stderr)
        prepare = _preparation(self._file_limit, None if self._prepare is None else self._prepare(rank))
        everything = {**os.environ, **environment(str(report_write))}
        stdin = None if rank == 0 else subprocess.DEVNULL
        passed_on = (report_write, *self._passed_on)
        launcher = os.getpid()
        try:
            process = (
                subprocess.Popen(
                    self._command,
                    env=everything,
                    stdin=stdin,
                    stdout=stdout_write,
                    stderr=stderr_write,
                    pass_fds=passed_on,
                    start_new_session=True,
                    preexec_fn=prepare,
                )
                if self._preloaded is None
                else self._fork(everything, (stdin, stdout_write, stderr_write), passed_on, prepare, closing)
            )
        except (OSError, subprocess.SubprocessError, UsageError):
            closing += [end for end in (report, stdout, stderr) if end is not None]
            raise
        finally:
            if os.getpid() == launcher:
                for end in closing:
                    os.close(end)
        return RankProcess(process, pipes)

    def _fork(
        self,
        environment: Mapping[str, str],
        streams: Sequence[int | None],
        passed_on: Sequence[int],
        prepare: Callable[[], None],
        closing: list[int],
    ) -> Forked:
        """A fork of this process that runs the command's script. closing: gets what the launcher needs no longer."""
        assert self._preloaded is not None
        self._preloaded.require(environment)
        if subprocess.DEVNULL in streams:
            closing.append(nothing := os.open(os.devnull, os.O_RDWR))
            streams = [nothing if stream == subprocess.DEVNULL else stream for stream in streams]
        return fork_rank(self._command, environment, streams, self._preloaded.descriptors | set(passed_on), prepare)


def _make_room(descriptors: int) -> tuple[int, int]:
    """Raises the launcher's limit of open files if so many more may not fit. Returns what it was."""
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = descriptors + 64
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before


def _preparation(file_limit: tuple[int, int], more: Callable[[], None] | None) -> Callable[[], None]:
    """What a rank does between fork and exec; all that it needs is loaded before the fork."""
    libc = ctypes.CDLL(None, use_errno=True)
    launcher = os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != launcher:  # it died before prctl: nobody will tell us any more
            os._exit(1)
        resource.setrlimit(resource.RLIMIT_NOFILE, file_limit)  # programs that use select(2) count on 1024
        if more is not None:
            more()

    return prepare
