"""A rank ends before the others are done: all others get one error that names it, soon, and nothing is left."""

from __future__ import annotations

import json
import re

import pytest

from support.launch import RANKS, run_ranks

SIZE = 3


def leave(tmp_path, rank, when, how, **env):
    """What the other ranks got, and how the job ended."""
    result = run_ranks(SIZE, RANKS / "leave.py", tmp_path, rank, when, how, timeout=20, env=env)
    assert not result.left_behind, result.said
    others = {other: tmp_path / f"{other}.json" for other in range(SIZE) if other != rank}
    return {other: json.loads(file.read_text()) for other, file in others.items() if file.exists()}, result


def last_line(result):
    return re.sub(r"pid \d+", "pid N", result.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("when", "how"),
    [
        ("before import", "0"),
        ("before import", "3"),
        ("before joining", "0"),
        ("before joining", "3"),
        ("before joining", "raise"),
        ("after joining", "0"),
        ("after joining", "raise"),
        ("in the middle", "3"),
        ("in the middle", "raise"),
        ("in the middle", "_exit0"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_ends_is_named(tmp_path, rank, when, how):
    errors, result = leave(tmp_path, rank, when, how)
    assert result.code == {"0": 1, "_exit0": 1, "3": 3, "raise": 1}[how], result.said
    assert f"rank {rank}" in last_line(result), result.said
    if how == "raise":
        assert last_line(result).startswith(f"tarantella: rank {rank} (pid N) "), result.said
        assert "what went wrong" in result.stderr
    if when in ("after joining", "in the middle"):  # who has not joined yet may be ended by the launcher
        assert len(errors) == SIZE - 1, result.said
    for error in errors.values():
        assert error["kind"] in ("PeerLostError", "AbortedError"), error
        assert f"rank {rank}" in error["text"], error
        assert error["seconds"] < 30, error  # not the 120 of TNT_TIMEOUT
    assert result.seconds < 60, result.said


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_is_named(tmp_path, rank):
    errors, result = leave(tmp_path, rank, "in the middle", "SIGKILL")
    assert result.code == 137
    assert last_line(result).startswith(f"tarantella: rank {rank} (pid N) was killed by SIGKILL")
    assert len(errors) == SIZE - 1, result.said
    for error in errors.values():
        assert error["kind"] == "PeerLostError"
        assert f"rank {rank}" in error["text"]
        assert error["seconds"] < 2, error


@pytest.mark.parametrize("when", ["before joining", "in the middle"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_stopped_rank_is_named_after_the_deadline(tmp_path, rank, when):
    errors, result = leave(tmp_path, rank, when, "SIGSTOP", TNT_TIMEOUT="2")
    assert result.code != 0
    assert len(errors) == SIZE - 1, result.said
    for error in errors.values():
        assert error["kind"] == "DeadlineError", error
        assert f"rank {rank}" in error["text"], error
        assert 1.5 < error["seconds"] < 6, error
    assert f"rank {rank}" in last_line(result), result.said
