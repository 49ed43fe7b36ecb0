"""The processes that a rank starts: they take no part in the job, and however they end, it goes on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from support.launch import RANKS, run_ranks
from support.mpirun import mpirun, needs_mpirun

SIZE = 3
REFUSED = (
    "UnsupportedError: process FORK is a fork of rank 1 (process RANK) and cannot communicate: call this in the rank itself, "
    "or start another program instead of a fork"
)
JOINED = r"tarantella.errors.UnsupportedError: process \d+ was started by rank 1 \(process RANK\) and is no rank itself: .*"


@pytest.fixture(scope="module", params=["shm", pytest.param("mpi", marks=needs_mpirun)])
def found(request, tmp_path_factory) -> list[dict[str, Any]]:
    """What the ranks found, in shared memory and over MPI."""
    folder = tmp_path_factory.mktemp("forks")
    if request.param == "shm":
        job = run_ranks(SIZE, RANKS / "forks.py", folder, timeout=90, env={"TNT_TIMEOUT": "60"}, forked=False).good()
    else:
        job = mpirun(SIZE, RANKS / "forks.py", folder, timeout=90, env={"TNT_TIMEOUT": "60", "TNT_TRANSPORT": "mpi"})
        assert job.code == 0, job.said
    assert "ValueError: of a fork" in job.stderr or request.param == "shm", job.said  # only rank 0's output is shown there
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]


def test_sums_are_right_whatever_forks_do(found):
    for rank in range(SIZE):
        assert len(found[rank]["sums"]) == 15
        assert all(values == [6.0] * 1000 for values in found[rank]["sums"])


@pytest.mark.parametrize("call", ["first collective", "another collective", "object"])
def test_a_fork_cannot_communicate(found, call):
    assert found[1][call] == REFUSED


def test_a_fork_knows_the_place_of_its_rank(found):
    assert json.loads(found[1]["place"]) == [1, SIZE, 1, False]


def test_forks_end_as_they_want(found):
    endings = {"sys.exit(0)": 0, "sys.exit(3)": 3 << 8, "os._exit(0)": 0, "raise": 1 << 8, "SIGKILL": 9, "exec": 0}
    assert {how: found[1][how] for how in endings} == endings


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_compute_and_cannot_communicate(found, method):
    assert found[1][method] == [[0, 1, 4], ["UnsupportedError"]]


def test_a_pool_may_stay_open(found):
    assert found[1]["executor"] == [0, 1, 4]


def test_a_program_of_a_rank_is_no_rank(found):
    assert found[1]["program"] == [0, ""]
    code, said = found[1]["program that joins"]
    assert code == 1
    assert re.fullmatch(JOINED, said), said


@pytest.mark.parametrize("legacy", ["0", "1"])
def test_forks_in_fit_change_nothing(tmp_path, legacy):
    env = {"TF_USE_LEGACY_KERAS": legacy, "TNT_TIMEOUT": "60"}
    run_ranks(2, RANKS / "keras/forks_in_fit.py", tmp_path, timeout=90, env=env).good()
    on = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert on[1]["ended"] == [["os._exit", 0], ["multiprocessing", 0]] * 4
    for rank in range(2):
        assert on[rank]["with forks"] == on[0]["without"]
        assert on[rank]["with workers"] == on[0]["without"]
