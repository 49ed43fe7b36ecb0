"""The hostfile of a running job: each version is read once, when it is whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host
from tarantella.launcher.watch import hostfile
from tarantella.launcher.watch.hostfile import Hostfile


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostfile, "LOOKS_EVERY", 0.0)
    path = tmp_path / "hosts"
    path.write_text("a slots=2\n")
    return path


def test_a_version_is_told_once_when_two_looks_have_found_it(file):
    watched = Hostfile(str(file), None, (Host("a", 2),))
    assert [watched.change() for _ in range(3)] == [None] * 3  # as when the job began
    file.write_text("a slots=2\nb\n")
    assert watched.change() is None  # somebody may be writing it
    file.write_text("a slots=2\nb slots=3\n")
    assert [watched.change() for _ in range(3)] == [None, (Host("a", 2), Host("b", 3)), None]
    file.write_text("a slots=2\nb slots=3 # back again\n")
    assert [watched.change() for _ in range(3)] == [None, (Host("a", 2), Host("b", 3)), None]


def test_a_change_before_the_first_look_is_seen(file):
    watched = Hostfile(str(file), None, (Host("a", 1),))
    assert [watched.change() for _ in range(3)] == [None, (Host("a", 2),), None]


def test_the_number_for_each_host_wins(file):
    watched = Hostfile(str(file), 4, (Host("a", 4),))
    file.write_text("a slots=2\nb\n")
    assert [watched.change() for _ in range(2)] == [None, (Host("a", 4), Host("b", 4))]


def test_a_version_that_makes_no_sense_is_refused_once(file):
    watched = Hostfile(str(file), None, (Host("a", 2),))
    watched.change()
    watched.change()
    for damage, reason in {
        lambda: file.write_text("a slots=x\n"): "unexpected 'slots=x'",
        lambda: file.write_text("# nobody\n"): "names no host",
        lambda: file.write_bytes(b"\xff\xfe\n"): "is not a text file",
        lambda: file.unlink(): "No such file or directory",
        lambda: os.mkfifo(file): "is no file that can be read again",
    }.items():
        damage()
        assert watched.change() is None
        with pytest.raises(UsageError, match=reason):
            watched.change()
        assert watched.change() is None
    file.unlink()
    file.write_text("c\n")
    assert [watched.change() for _ in range(2)] == [None, (Host("c", 1),)]


def test_it_is_not_looked_at_on_each_call(file, monkeypatch):
    monkeypatch.setattr(hostfile, "LOOKS_EVERY", 1e9)
    watched = Hostfile(str(file), None, (Host("a", 2),))
    assert [watched.change() for _ in range(3)] == [None] * 3
