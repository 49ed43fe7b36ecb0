"""`hvd.elastic`: jobs whose ranks are killed, which continue from their last commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.findings import Findings
from support.launch import RANKS


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commits")
    options = ["--horovod", "--max-restarts", 3]
    findings = Findings(2, RANKS / "horovod/horovod_elastic.py", launcher_options=options, env={"TMPDIR": str(folder)})
    return findings, list(Path(folder).glob("tarantella-commits-*"))


def test_two_ranks_were_killed_and_nothing_is_left(found):
    findings, left = found
    assert findings.result.stderr.count("was killed by SIGKILL") >= 2, findings.result.said
    assert left == []


def test_a_loop_continues_from_its_last_commit(found):
    """The third start finds that of a finished training: its last commit was that of the last batch."""
    for on_rank in found[0]["loop"]:
        assert on_rank["error"] < 1e-6 and on_rank["began"] == [[1, 5]] and on_rank["resets"] == [2], on_rank


def test_fit_trains_the_rest_of_the_epoch(found):
    for on_rank in found[0]["fit"]:
        assert on_rank["error"] < 1e-6 and on_rank["began"] == [[1, 3]], on_rank
        assert on_rank["ends"] == [[2, 8], [3, 12]], on_rank


def test_a_function_runs_again(found):
    for result, seen, resets, never in found[0]["in_one_process"]:
        assert [result, seen, resets] == [12, [0, 1, 2], [1, 2]]
        assert never == ["HorovodInternalError", "no"]


def test_what_stands_in_no_file_is_refused(found):
    first, _ = found[0]["refused"]
    assert first[0] == "TypeError" and "cannot send a set" in first[1] and "TNT_HOROVOD_PICKLE=1" in first[1]


def test_a_commit_between_updates_is_refused(found):
    for on_rank in found[0]["between_updates"]:
        assert on_rank[0] == "UnsupportedError" and "has added up and not applied yet" in on_rank[1], on_rank
        assert len(on_rank) == 2, on_rank
