"""Starting the launcher with small rank scripts: what all its tests share. No TensorFlow."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

LAUNCHER = [sys.executable, "-m", "tarantella"]
TIMEOUT = 100

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
rank = int(os.environ["TNT_RANK"])
def mark(name, text=""):  # appears whole or not at all
    Path(f"{name}.{os.getpid()}.part").write_text(str(text)); os.rename(f"{name}.{os.getpid()}.part", name)
def wait_for(name):
    while not Path(name).exists(): time.sleep(0.005)
def report(kind, message=None):
    import json
    line = json.dumps({"kind": kind, "message": message}) + "\\n"
    os.write(int(os.environ["TNT_INTERNAL_REPORT_FD"].partition(":")[0]), line.encode())
def join():  # what a rank that joins tells the launcher
    import socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
        try: notice.sendto(b"joined", socket.MSG_DONTWAIT, "\\0tarantella-joined-" + os.environ["TNT_INTERNAL_LAUNCHER"])
        except OSError: pass  # another rank was first, or the launcher expects none
join()
"""


class Here:
    """A folder in which ranks run, and ways to run them."""

    def __init__(self, folder: Path, options: tuple[str, ...] = ()) -> None:
        """options: of the launcher, whenever it is started."""
        self.folder = folder
        self._options = options
        self.started: list[subprocess.Popen[str]] = []

    def script(self, body: str, name: str = "rank.py") -> Path:
        path = self.folder / name
        path.write_text(PRELUDE + dedent(body))
        return path

    def start(self, *words: object, **how: Any) -> subprocess.Popen[str]:
        how = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "preexec_fn": heed_signals,
        } | how
        launcher = subprocess.Popen(
            [*LAUNCHER, *self._options, *map(str, words)],
            cwd=self.folder,
            text=True,
            **how,
        )
        self.started.append(launcher)
        return launcher

    def run(self, *words: object, **how: Any) -> subprocess.CompletedProcess[str]:
        """The launcher with these words."""
        launcher = self.start(*words, **how)
        out, err = launcher.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(launcher.args, launcher.returncode, out, err)

    def ranks(self, number: int, body: str, *options: object, **how: Any) -> subprocess.CompletedProcess[str]:
        """So many ranks of a script with this body."""
        return self.run("-n", number, *options, "--", self.script(body), **how)

    def read(self, name: str) -> str:
        """The text of a file that a rank marks."""
        wait_until((self.folder / name).exists, name)
        return (self.folder / name).read_text()

    def wait_until_reaped(self, pid: int) -> None:
        """Until the launcher has noticed that a rank has ended."""
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), f"the launcher to look at {pid}")

    def pids(self, *names: str) -> list[int]:
        return [int(self.read(name)) for name in names]


def heed_signals() -> None:
    """Undoes what a shell and nohup do to jobs in the background, which the tests may be."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def alive(pid: int) -> bool:
    """Whether a process still runs; what nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.005)


FORKS_TOO = (
    "test_joining",
    "test_launcher_ending",
    "test_launcher_environment",
    "test_launcher_output",
    "test_launcher_signals",
    "test_supervision",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ranks that are forks of the launcher behave as programs of their own do: the same tests are run with both."""
    if "here" in metafunc.fixturenames and metafunc.module.__name__ in FORKS_TOO:
        metafunc.parametrize("here", [(), ("--preload", "json")], ids=["started", "forked"], indirect=True)


@pytest.fixture
def here(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Here]:
    here = Here(tmp_path, getattr(request, "param", ()))
    yield here
    for launcher in here.started:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()
        for pipe in (launcher.stdin, launcher.stdout, launcher.stderr):
            if pipe:
                pipe.close()


@pytest.fixture
def gone() -> Callable[..., None]:
    """Asserts that processes are gone within some seconds (now, by default)."""

    def check(pids: list[int], within: float = 0) -> None:
        wait_until(lambda: not any(map(alive, pids)), f"the end of {pids}", within)

    return check
