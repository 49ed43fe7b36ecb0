"""The lock of a checkpoint folder: one job at a time, whatever becomes of its process."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.launch import RANKS, run_ranks
from tarantella.errors import InvalidArgumentError
from tarantella.keras.checkpoint import lock
from tarantella.keras.checkpoint.folder import Folder


class Owner:
    """A process that has the lock of a folder, and a fork of it, which has not, and lives on."""

    def __init__(self, folder: Path) -> None:
        ready, told = os.pipe()
        released, self._release = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.close(self._release)
            lock.acquire(folder, print, seconds=5)
            if os.fork() == 0:
                time.sleep(600)
            os.write(told, b"!")
            os.read(released, 1)
            lock.release(folder)
            os._exit(0)
        assert os.read(ready, 1) == b"!"
        for end in (ready, told, released):
            os.close(end)

    def end(self) -> None:
        os.close(self._release)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


@pytest.fixture
def owner(tmp_path):
    owner = Owner(tmp_path)
    yield owner
    os.killpg(owner.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(owner.pid, 0)
    lock.release(tmp_path)


def test_a_second_process_is_refused_and_told_of_the_first(owner, tmp_path):
    since = r"since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d"
    expected = f"{re.escape(str(tmp_path))} is in use by process {owner.pid} on {socket.gethostname()} {since}: give each job a"
    with pytest.raises(InvalidArgumentError, match=expected):
        lock.acquire(tmp_path, pytest.fail, seconds=0.2)


def test_a_process_that_was_killed_has_it_no_longer(owner, tmp_path):
    owner.kill()
    lock.acquire(tmp_path, pytest.fail, seconds=0)
    assert f'"pid": {os.getpid()}' in (tmp_path / lock.NAME).read_text()


def test_who_ends_soon_is_waited_for_and_leaves_nothing(owner, tmp_path):
    owner.end()
    lock.acquire(tmp_path, pytest.fail, seconds=30)
    lock.acquire(tmp_path, pytest.fail, seconds=0)  # it is ours already
    lock.release(tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_locks_of_the_system_the_name_in_the_file_counts(owner, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(InvalidArgumentError, match=f"in use by process {owner.pid} on "):
        lock.acquire(tmp_path, pytest.fail, seconds=0.2)
    owner.kill()
    os.waitpid(owner.pid, 0)  # nothing has its number any more
    warnings: list[str] = []
    lock.acquire(tmp_path, warnings.append, seconds=0.2)
    assert warnings == [
        f"{tmp_path} cannot be locked (No locks available): see to it that no other job uses this folder for checkpoints"
    ]


def test_a_link_to_parts_is_removed_and_what_it_names_stays(tmp_path):
    elsewhere, folder, warnings = tmp_path / "elsewhere", tmp_path / "folder", []
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "part0.npz").touch()
    link = folder / "fit1-step000000001.0123abcd"
    link.symlink_to(elsewhere)
    Folder(folder, 1, 2, warnings.append)
    assert not list(folder.iterdir()) and (elsewhere / "part0.npz").exists()
    assert warnings == [
        f"{link}, the parts of a checkpoint that is not needed any more, was a symbolic link: what it names stays"
    ]


def test_fit_refuses_a_folder_in_use_and_misses_no_part_for_ever(owner, tmp_path):
    """The folder of another process, and a part that something removes."""
    free = tmp_path / "free"
    run_ranks(2, RANKS / "keras" / "checkpoint" / "disturbed.py", tmp_path, free, timeout=90, env={"TNT_TIMEOUT": "5"}).good()
    assert not [path for path in Path(free).iterdir() if path.name == lock.NAME]
