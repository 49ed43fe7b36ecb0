"""A failure is reported into the launcher's pipe, and into nothing that has its number by now."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarantella import reporting
from tarantella.variables import REPORT_FD


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    os.set_blocking(read, False)
    monkeypatch.setenv(REPORT_FD, reporting.named(write))
    yield read, write
    for end in (read, write):
        os.close(end)


def test_a_failure_is_reported(pipe: tuple[int, int]) -> None:
    reporting.report("primary", "ValueError: " + "x" * 5000)
    said = json.loads(os.read(pipe[0], 10_000))
    assert said == {"kind": "primary", "message": ("ValueError: " + "x" * 5000)[: reporting.MAX_MESSAGE], "step": None}


def test_another_file_with_that_number_is_left_alone(pipe: tuple[int, int], tmp_path: Path) -> None:
    """In a program that a rank has started, which has not inherited the pipe."""
    with open(tmp_path / "file", "wb") as file:
        os.dup2(file.fileno(), pipe[1])
    reporting.report("primary", "ValueError: x")
    reporting.keep_from_programs()
    assert (tmp_path / "file").read_bytes() == b""
    another, write = os.pipe()  # that is a pipe, too
    os.dup2(write, pipe[1])
    os.close(write)
    reporting.report("primary", "ValueError: x")
    os.set_blocking(another, False)
    with pytest.raises(BlockingIOError):
        os.read(another, 1)
    os.close(another)


@pytest.mark.parametrize("value", ["", "3", "x:1:2", "99999:1:2"])
def test_where_there_is_no_pipe_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(REPORT_FD, value)
    reporting.report("primary", "ValueError: x")
    reporting.keep_from_programs()


def test_programs_do_not_inherit_it(pipe: tuple[int, int]) -> None:
    reporting.keep_from_programs()
    assert fcntl.fcntl(pipe[1], fcntl.F_GETFD) & fcntl.FD_CLOEXEC
