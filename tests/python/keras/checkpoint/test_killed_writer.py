"""The writer of a checkpoint is killed at each of its system calls: what was good stays, and the next start writes the same."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tarantella.keras.checkpoint import format as file_format
from tarantella.keras.checkpoint import lock
from tarantella.keras.checkpoint.folder import Folder
from tarantella.keras.checkpoint.writer import Writer

STRACE = shutil.which("strace")
pytestmark = [pytest.mark.long, pytest.mark.skipif(STRACE is None, reason="strace is not installed")]

OF_THE_TEST = ("exit", "exit_group", "restart_syscall")
"""Calls at which nothing of the writer is left to be done."""


def tree(step: int) -> dict[str, object]:
    return {"step": step, "values": [np.arange(2000.0) * step, np.ones((3, 3), np.float32)]}


def write(path: Path, step: int) -> None:
    """As in `fit`: a thread writes. keep=1, so that the checkpoint before is removed then."""
    folder = Folder(path, 1, 1, print)
    writer = Writer(print)
    writer.begin(folder.place(step), lambda: folder.write(step, tree(step)))
    assert writer.wait() and not writer.has_failed


def traced(path: Path, *options: str) -> str:
    """Writes a second checkpoint in a process whose threads strace follows. Returns what that has seen."""
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go)
            os.read(ready, 1)
            lock.acquire(path, print, seconds=0)
            write(path, 2)
            lock.release(path)
        finally:
            os._exit(0)
    log = path.parent / "trace"
    words = [str(STRACE), "-f", "-qq", "-e", "signal=none", "-o", str(log), "-p", str(pid), *options]
    tracer = subprocess.Popen(words)  # the report of the test has what it prints
    try:
        while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
            if tracer.poll() is not None:
                pytest.skip("strace cannot follow a process here")
        os.close(go)
        os.waitpid(pid, 0)
    finally:
        tracer.send_signal(signal.SIGTERM)
        tracer.wait()
        os.close(ready)
    return log.read_text()


def prepared(path: Path) -> Path:
    """A folder with a first checkpoint."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    write(path, 1)
    return path


def digest(path: Path) -> str:
    """Of the content; the file has the time at which it was written."""
    found = file_format.read(path)
    return hashlib.sha256(b"".join(value.tobytes() for value in found["values"]) + str(found["step"]).encode()).hexdigest()


@pytest.mark.timeout(300)
def test_a_writer_that_is_killed_at_any_system_call_loses_nothing(tmp_path):
    whole = prepared(tmp_path / "whole")
    calls = Counter(re.findall(r"^\d+ +(\w+)\(", traced(whole), re.MULTILINE))
    expected = digest(whole / "fit1-step000000002.npz")
    assert [path.name for path in whole.iterdir()] == ["fit1-step000000002.npz"]
    killed = 0
    for name, times in calls.items():
        for number in range(1, times + 1) if name not in OF_THE_TEST else ():
            path = prepared(tmp_path / "killed")
            traced(path, "-e", f"inject={name}:signal=SIGKILL:when={number}")
            good = [one for one in path.glob("fit1-*.npz") if file_format.read(one)["step"] == int(one.stem[-9:])]
            assert good, f"killed at call {number} of {name}, the folder has {sorted(path.iterdir())}"
            killed += not (len(good) == 1 and good[0].name == "fit1-step000000002.npz")
            lock.acquire(path, pytest.fail, seconds=0)
            write(path, 2)  # the next start
            lock.release(path)
            assert [one.name for one in path.iterdir()] == ["fit1-step000000002.npz"], (name, number)
            assert digest(path / "fit1-step000000002.npz") == expected, (name, number)
    assert killed > 20, "the injector has killed nothing before the checkpoint was there"
