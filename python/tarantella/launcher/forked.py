"""A rank that is a fork of the launcher, not a new interpreter: how it is forked, and how the fork becomes the rank.

The fork leaves the launcher's stack by an exception, which `cli.main` catches. Only then does it run the script, with nothing
of the launcher below it: the interpreter ends as it does for any script, exit handlers and exit codes included.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

from tarantella import tensorflow_import
from tarantella.launcher.signals import ENDING

CANNOT_START = 126
_kept: list[object] = []
"""Objects of the launcher that must not be deleted: a logging handler may still write to its streams."""


class Forked:
    """A forked rank in its parent, like `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Returns the exit code, or the negative number of the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkedRank(BaseException):
    """Raised in the forked process only. `run` makes this process the rank."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int | None],
        descriptors: frozenset[int],
        signals: set[int],
    ) -> None:
        """command: interpreter, script, arguments. streams: what stdin, stdout and stderr become, None for as they are.

        descriptors: those that stay open beside them. signals: the mask that the script gets; all are blocked until then.
        """
        super().__init__()
        self._command = tuple(command)
        self._environment = dict(environment)
        self._streams = tuple(streams)
        self._descriptors = descriptors
        self._signals = signals

    def run(self) -> NoReturn:
        """Runs the script; never returns."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *ENDING):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for descriptor, source in enumerate(self._streams):
            if source is not None:
                os.dup2(source, descriptor)
        _close_all_but(self._descriptors | {0, 1, 2})
        os.environ.clear()
        os.environ.update(self._environment)
        _reopen_streams()
        _seed_anew()
        tensorflow_import.install()  # when tarantella was imported, this process was the launcher and no rank
        signal.pthread_sigmask(signal.SIG_SETMASK, self._signals)
        run_script(self._command[1], self._command[2:])


def fork_rank(
    command: Sequence[str],
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
        raise ForkedRank(command, environment, streams, descriptors, before)
    return Forked(pid)


def _lead_a_session(prepare: Callable[[], None]) -> None:
    """The first steps of the forked process. It exits if they fail."""
    try:
        os.setsid()
        prepare()
    except BaseException as error:
        os.write(2, f"tarantella: a rank cannot be started: {error}\n".encode(errors="backslashreplace"))
        os._exit(CANNOT_START)


def run_script(path: str, arguments: Sequence[str]) -> NoReturn:
    """Runs a script as `python path arguments` does, in this process, and ends with it.

    The interpreter's own start of a script is imitated: `__main__`, `sys.argv`, `sys.path[0]`, and an uncaught exception whose
    traceback begins in the script.
    """
    sys.argv[:] = [path, *arguments]
    search_beside(path)
    module: Any = types.ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    module.__builtins__ = builtins
    module.__loader__ = SourceFileLoader("__main__", module.__file__)
    module.__cached__ = None
    _kept.append(sys.modules["__main__"])
    sys.modules["__main__"] = module
    try:
        with io.open_code(module.__file__) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this function
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):  # the interpreter then ends by SIGINT; the traceback has been shown
            sys.excepthook = lambda *_: None
            raise
        sys.exit(1)
    sys.exit(0)


def search_beside(script: str) -> None:
    """Puts the script's folder first in the module search path, unless the interpreter runs with `-P`."""
    if not getattr(sys.flags, "safe_path", False):  # since Python 3.11
        sys.path[0] = os.path.dirname(os.path.realpath(script))


def _close_all_but(descriptors: frozenset[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in descriptors:
            with suppress(OSError):  # the descriptor that reads this folder
                os.close(int(name))


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
        _kept.append(before)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _seed_anew() -> None:
    """Makes unseeded ranks draw different numbers, as separate programs do. The fork itself seeds Python's generator."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
