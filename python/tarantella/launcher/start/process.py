"""One rank's process: how it is started, signalled and found to have ended.

Every rank leads a session of its own, so that it can be ended together with all that it started, and is
killed by the kernel when the launcher dies, so that it ends even if the launcher cannot end it.
"""

import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tarantella import reporting, variables
from tarantella.launcher.base import mark
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.command import file_of
from tarantella.launcher.command_line.hosts import Slot
from tarantella.launcher.show.flight_memory import FlightMemory
from tarantella.launcher.show.shown_output import shown_output
from tarantella.launcher.start.environment import Rendezvous
from tarantella.launcher.start.forked import Forked, fork_rank
from tarantella.launcher.start.preload import Preloaded

PR_SET_PDEATHSIG = 1
_rank_start = Path(reporting.__file__).parent / "start" / "rank"
RANK_START = str(_rank_start) if _rank_start.is_dir() else ""  # an installation for C has none
"""Python searches it first in a rank and runs what it finds there (`sitecustomize.py`)."""
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


@dataclass(frozen=True)
class ExitStatus:
    """The exit code of a process, or the number of the signal that killed it."""

    code: int = 0
    signal: int = 0
    lost: str = ""
    """Its host and what happened to that, if the process was lost with it; it counts as killed then."""

    @property
    def success(self) -> bool:
        return self.code == 0 and self.signal == 0

    @property
    def exit_code(self) -> int:
        """As a shell reports it."""
        return 128 + self.signal if self.signal else self.code

    def __str__(self) -> str:
        if self.lost:
            return f"was lost with its host ({self.lost})"
        if not self.signal:
            return f"exited with code {self.code}"
        try:
            return f"was killed by {signal.Signals(self.signal).name}"
        except ValueError:  # a real-time signal has no name
            return f"was killed by signal {self.signal}"


@dataclass(frozen=True)
class Pipes:
    """The ends to read of the pipes from a rank; None where it writes to the other one, to /dev/null or to our own output."""

    report: int
    stdout: int | None
    stderr: int | None
    as_is: bool = False
    """Whether what comes is shown as it is, as that of rank 0."""


class RankProcess:
    """A started rank."""

    host = ""
    """Its host, if that is another one."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, pipes: Pipes, memory: FlightMemory | None) -> None:
        """memory: in which the rank records its calls."""
        self._process = process
        self.pid = process.pid
        self.pipes = pipes
        self.memory = memory

    def signal(self, number: int, alone: bool = False) -> None:
        """Sends a signal to the rank and all that it has started. Not to be called after `poll` has returned a status.

        alone: to the rank alone, which may need the workers that make its data.
        """
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or runs as another user
            (os.kill if alone else os.killpg)(self.pid, number)

    def handles_term(self) -> bool:
        """Whether the rank has a handler for SIGTERM. False if the system does not tell."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return False
        caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def is_stopped(self) -> bool:
        """Whether a signal has stopped the rank."""
        return mark.is_stopped(self.pid)

    def poll(self) -> ExitStatus | None:
        """How it ended, or None while it runs. Kills what is left of its process group.

        The group is killed before the process is reaped, because its number may be reused afterwards.
        """
        seen = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        return ExitStatus(signal=-code) if code < 0 else ExitStatus(code=code)


@dataclass(frozen=True)
class RankSpec:
    """How the ranks of a job start on this node."""

    command: tuple[str, ...]
    """Interpreter, script, arguments."""
    environment: Callable[[int, str], Mapping[str, str]]
    """The variables to set for a rank, given its number and the name of its report pipe (`reporting.named`)."""
    output_on_all_devices: bool = False
    """Whether the output of all ranks is shown, by lines; else that of rank 0 is, as it is."""
    elastic: bool = False
    """Whether any rank may become rank 0, whose output is shown."""
    inherited: tuple[int, ...] = ()
    """Descriptors that ranks get as they are."""
    prepare: Callable[[int], Callable[[], None]] | None = None
    """Gives for a rank what its process does between fork and exec."""
    preloaded: Preloaded | None = None
    """The modules that ranks have imported if they are forks of this process."""
    program: tuple[str, ...] = ()
    """The part of the command that such a fork runs."""
    source: bytes | None = None
    """The standard input of ranks, if that is their script."""


class RankStarter:
    """Starts the ranks of a job."""

    def __init__(self, spec: RankSpec, ranks: int) -> None:
        self._spec = spec
        self._file_limit = _raise_file_limit(4 * ranks)

    def meeting(self, ranks: Sequence[int]) -> tuple[Rendezvous, list[dict[str, str]]]:
        """Where these ranks, by their numbers, meet next, and their places there."""
        rendezvous = Rendezvous.random()
        return rendezvous, rendezvous.places([""] * len(ranks))

    def start(self, rank: int, slot: Slot, added: Mapping[str, str] | None = None) -> RankProcess:
        """Starts one rank.

        Args:
            rank: its number.
            slot: its place on the machine.
            added: variables that win over all others.

        Raises:
            OSError; UsageError where it cannot be a fork; ForkedRank in a forked rank itself.
        """
        spec = self._spec
        report, report_write = os.pipe()  # no rank inherits either of them unless it is named below
        as_is = (rank == 0 or spec.elastic) and not spec.output_on_all_devices
        (stdout, stdout_write), (stderr, stderr_write) = shown_output() if as_is else _piped(spec.output_on_all_devices)
        written = {report_write, stdout_write, stderr_write} - {None, subprocess.DEVNULL}
        closing: list[int] = [end for end in written if end is not None]
        stdin = None if rank == 0 else subprocess.DEVNULL
        if spec.source is not None:
            closing.append(stdin := file_of(spec.source) if spec.preloaded is None else os.open(os.devnull, os.O_RDONLY))
        streams = (stdin, stdout_write, stderr_write)
        memory = _flight_memory()
        recording = {variables.FLIGHT_RECORD: "" if memory is None else memory.name()}
        if spec.elastic:
            recording[variables.ELASTIC] = str(rank)
        environment = {**os.environ, **spec.environment(rank, reporting.named(report_write)), **recording, **(added or {})}
        inherited = (report_write, *spec.inherited, *([] if memory is None else [memory.descriptor]))
        prepare = _preparation(self._file_limit, None if spec.prepare is None else spec.prepare(slot.index))
        launcher = os.getpid()
        try:
            process = (
                self._execute(environment, streams, inherited, prepare)
                if spec.preloaded is None
                else self._fork(environment, streams, inherited, prepare, closing)
            )
        except (OSError, subprocess.SubprocessError, UsageError):
            closing += [end for end in (report, stdout, stderr) if end is not None]
            closing += [] if memory is None else [memory.descriptor]
            raise
        finally:
            if os.getpid() == launcher:
                for end in closing:
                    os.close(end)
        return RankProcess(process, Pipes(report, stdout, stderr, as_is), memory)

    def _execute(
        self,
        environment: Mapping[str, str],
        streams: Sequence[int | None],
        inherited: Sequence[int],
        prepare: Callable[[], None],
    ) -> subprocess.Popen[bytes]:
        """A program of its own that runs the command."""
        stdin, stdout, stderr = streams
        search_path = os.pathsep.join(filter(None, [RANK_START, environment.get("PYTHONPATH")]))
        return subprocess.Popen(
            self._spec.command,
            env={**environment, **({"PYTHONPATH": search_path} if search_path else {})},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=inherited,
            start_new_session=True,
            preexec_fn=prepare,
        )

    def _fork(
        self,
        environment: Mapping[str, str],
        streams: Sequence[int | None],
        inherited: Sequence[int],
        prepare: Callable[[], None],
        closing: list[int],
    ) -> Forked:
        """A fork of this process that runs the command's script. closing: gets the descriptors that only the fork needs."""
        preloaded = self._spec.preloaded
        assert preloaded is not None
        preloaded.require(environment)
        if subprocess.DEVNULL in streams:
            closing.append(nothing := os.open(os.devnull, os.O_RDWR))
            streams = [nothing if stream == subprocess.DEVNULL else stream for stream in streams]
        kept = preloaded.descriptors | set(inherited)
        return fork_rank(self._spec.program, self._spec.source, environment, streams, kept, prepare)


def _piped(stdout: bool) -> tuple[tuple[int | None, int], tuple[int, int]]:
    """The ends to read and to write of the output of a rank that is shown by lines, or of its errors only."""
    return os.pipe() if stdout else (None, subprocess.DEVNULL), os.pipe()


def _flight_memory() -> FlightMemory | None:
    """None where the system refuses it, as under a small limit on file sizes: the rank runs all the same."""
    try:
        return FlightMemory()
    except OSError:
        return None


def _raise_file_limit(descriptors: int) -> tuple[int, int]:
    """Raises the launcher's limit of open files, if it is too low for so many more. Returns the limit before."""
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = descriptors + 64
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return before


def end_with_parent(parent: int, number: signal.Signals) -> None:
    """The kernel sends this process the signal when its parent has ended. The process exits if that was before this call.

    parent: its process id.
    """
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _preparation(file_limit: tuple[int, int], more: Callable[[], None] | None) -> Callable[[], None]:
    """The actions of a rank between fork and exec. Everything they need is loaded before the fork."""
    launcher = os.getpid()

    def prepare() -> None:
        end_with_parent(launcher, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, file_limit)  # programs that use select(2) count on 1024
        if more is not None:
            more()

    return prepare
