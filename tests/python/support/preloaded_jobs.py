"""The processes that have imported TensorFlow (`forked_jobs.py`), one for each front end, and the jobs that they fork."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from ctypes.util import find_library
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support import forked_jobs
from tarantella.launcher.start.environment import ALWAYS
from tarantella.launcher.start.preload import FIXED_BY_IMPORT

SERVER = Path(forked_jobs.__file__)
MODULES = ("numpy", "tensorflow", "tarantella.keras.model", "tarantella.keras.models", "tarantella.keras.callbacks")
ALLOCATOR = {"LD_PRELOAD": library} if (library := find_library("jemalloc")) else {}
"""Building and optimizing graphs takes a sixth less time with it."""
LATE = 10
"""Seconds in which a job that has been told to end has to."""


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    code: int
    stdout: str
    stderr: str
    left: list[int]
    """Processes that still ran after it; they have been killed."""
    late: bool
    """Whether it had not ended in time."""


def run(
    kind: str, options: list[str], words: list[str], environment: Mapping[str, str], folder: str, timeout: float
) -> Outcome:
    """Runs the launcher, or a script without it, and waits for its end."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        job = Job(kind, [*options, *words], environment, folder, stdout.fileno(), stderr.fileno())
        late = False
        try:
            code = job.wait(timeout)
        except subprocess.TimeoutExpired:
            late, code = True, job.give_up()
        finally:
            job.close()
        said = [_text(file.fileno()) for file in (stdout, stderr)]
    return Outcome(code, *said, job.left, late)


class Job:
    """A job that runs, with the interface of `subprocess.Popen` as far as it is needed.

    Args:
        stdout, stderr: descriptors.
        options: more for the process that keeps the job, such as its patience (`forked_jobs.py`).
    """

    def __init__(
        self,
        kind: str,
        words: list[str],
        environment: Mapping[str, str],
        folder: str,
        stdout: int,
        stderr: int,
        **options: float,
    ) -> None:
        if environment.get("TF_USE_LEGACY_KERAS") in ("", "0"):  # as if it were not set
            environment = {name: value for name, value in environment.items() if name != "TF_USE_LEGACY_KERAS"}
        fixed = {**ALWAYS, **{name: environment[name] for name in FIXED_BY_IMPORT if name in environment}}
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server(tuple(sorted(fixed.items()))))
        job = {"kind": kind, "words": words, "environment": dict(environment), "folder": folder, **options}
        with open(os.devnull) as stdin:
            forked_jobs.request(self._connection, job, [stdin.fileno(), stdout, stderr])
        self._lines = b""
        self.pid: int = json.loads(self._line(None))["pid"]
        self.left: list[int] = []
        """Processes that still ran after the job; they have been killed."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        line = self._line(timeout)
        ended = json.loads(line) if line else {"code": -1, "left": []}
        self.left = ended["left"]
        code: int = ended["code"]
        return code

    def has_ended(self) -> bool:
        """Whether waiting would return at once."""
        return bool(select.select([self._connection], [], [], 0)[0])

    def give_up(self) -> int:
        """Ends the job. Returns its exit code."""
        self._connection.shutdown(socket.SHUT_WR)
        return self.wait(LATE)

    def close(self) -> None:
        """Ends a job that still runs, without waiting for it."""
        self._connection.close()

    def _line(self, timeout: float | None) -> bytes:
        """The next line of the keeper's; empty if it has gone."""
        self._connection.settimeout(timeout)
        while b"\n" not in self._lines:
            try:
                text = self._connection.recv(4096)
            except TimeoutError:
                raise subprocess.TimeoutExpired("the job", timeout or 0) from None
            if not text:
                return b""
            self._lines += text
        line, _, self._lines = self._lines.partition(b"\n")
        return line


def _text(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors="replace")


@cache
def _server(fixed: tuple[tuple[str, str], ...]) -> str:
    """The socket of the process that has imported with these variables. All workers of a test session share it."""
    session = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    folder = Path(tempfile.gettempdir(), f"jobs-{session}")
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / hashlib.sha256(repr(fixed).encode()).hexdigest()[:16]
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start_server(path, dict(fixed), session)
    return str(path)


def _start_server(path: Path, fixed: dict[str, str], session: int) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TNT_")}
    environment = {name: value for name, value in inherited.items() if name not in FIXED_BY_IMPORT} | fixed
    process = subprocess.Popen(
        [sys.executable, SERVER, path, str(session), *MODULES],
        env={**environment, **ALLOCATOR, "CUDA_VISIBLE_DEVICES": "-1", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n", "the process that imports TensorFlow for the tests has ended"
