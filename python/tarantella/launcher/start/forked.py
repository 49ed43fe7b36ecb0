"""A rank that is a fork of the launcher, not a new interpreter: how it is forked, and how the fork becomes the rank.

The fork leaves the launcher's stack by an exception, which `cli.main` catches. Only then does it run the script, with nothing
of the launcher below it: the interpreter ends as it does for any script, exit handlers and exit codes included.
"""

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tarantella import first_gradient, horovod_name, interrupts, reporting, tensorflow_import, trackers
from tarantella.launcher.base.signals import ASKING, ENDING
from tarantella.launcher.start import main_program

CANNOT_START = 126
_old_streams: list[object] = []
"""Objects of the launcher that must not be deleted: a logging handler may still write to its streams."""


class Forked:
    """A forked rank in its parent, like `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Returns the exit code, or the negative number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@dataclass(eq=False)
class ForkedRank(BaseException):
    """Raised in the forked process only. `run` makes this process the rank."""

    program: Sequence[str]
    source: bytes | None
    """As `main_program.run` takes them."""
    environment: Mapping[str, str]
    streams: Sequence[int | None]
    """What stdin, stdout and stderr become, None for the same."""
    descriptors: frozenset[int]
    """Those that stay open beside them."""
    signals: set[int]
    """The mask that the script gets; all are blocked until then."""

    def run(self) -> NoReturn:
        """Runs the script; never returns."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, ASKING, *ENDING):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for descriptor, source in enumerate(self.streams):
            if source is not None:
                os.dup2(source, descriptor)
        for descriptor in open_descriptors() - self.descriptors - {0, 1, 2}:
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(self.environment)
        _reopen_streams()
        _seed_anew()
        tensorflow_import.install()  # when tarantella was imported, this process was the launcher and no rank
        horovod_name.install()
        trackers.install()
        interrupts.install()
        first_gradient.install()
        reporting.install(only_if_leader=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.signals)
        main_program.run(self.program, self.source)


def fork_rank(
    program: Sequence[str],
    source: bytes | None,
    environment: Mapping[str, str],
    streams: Sequence[int | None],
    descriptors: frozenset[int],
    prepare: Callable[[], None],
) -> Forked:
    """Forks this process. Raises ForkedRank in the fork, where prepare has been called, and OSError if there is none."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    launcher = os.getpid()
    try:
        with warnings.catch_warnings():  # warns of threads; those that libraries start when they are loaded only wait for work
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    finally:
        if os.getpid() == launcher:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if pid == 0:
        _lead_a_session(prepare)
        raise ForkedRank(program, source, environment, streams, descriptors, before)
    return Forked(pid)


def _lead_a_session(prepare: Callable[[], None]) -> None:
    """The first steps of the forked process. It exits if they fail."""
    try:
        os.setsid()
        prepare()
    except BaseException as error:
        os.write(2, f"tarantella: a rank cannot be started: {error}\n".encode(errors="backslashreplace"))
        os._exit(CANNOT_START)


def open_descriptors() -> frozenset[int]:
    """The descriptors that this process has open."""
    found = map(int, os.listdir("/proc/self/fd"))
    return frozenset(number for number in found if os.path.exists(f"/proc/self/fd/{number}"))  # not the one that has read it


def _reopen_streams() -> None:
    """Python's own stdout and stderr, buffered as the environment of the rank says."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        if before is None:  # it was closed when the launcher started
            continue
        file: Any = io.TextIOWrapper(
            open(descriptor, "wb", buffering=0 if unbuffered else -1, closefd=False),  # noqa: SIM115
            encoding=before.encoding,
            errors=before.errors,
            newline="\n",
            line_buffering=descriptor == 2 or os.isatty(descriptor),
            write_through=unbuffered,
        )
        file.mode = "w"
        _old_streams.append(before)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _seed_anew() -> None:
    """Makes unseeded ranks draw different numbers, as separate programs do. The fork itself seeds Python's generator."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
