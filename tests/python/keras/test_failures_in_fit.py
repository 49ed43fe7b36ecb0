"""A rank fails while it trains with others: one error on every rank, which names it, and the job ends."""

from __future__ import annotations

import json

import pytest

from support.launch import RANKS, run_ranks

AT_ONCE = 30
"""Seconds, on a busy machine too. A rank that is not told of a failure waits for 120 (TNT_TIMEOUT)."""


def fail(tmp_path, size, how, **env):
    """What the ranks got, and how the job ended."""
    result = run_ranks(size, RANKS / "keras/fail_in_fit.py", tmp_path, how, env=env)
    assert not result.left_behind, result.said
    errors = {rank: tmp_path / f"{rank}.json" for rank in range(size)}
    return {rank: json.loads(file.read_text()) for rank, file in errors.items() if file.exists()}, result


def test_an_exception(tmp_path):
    errors, result = fail(tmp_path, 3, "raise")
    assert result.code == 1, result.said
    line = result.stderr.splitlines()[-1]
    assert line.startswith("tarantella: rank 1 (pid "), result.said
    assert "ValueError: this batch is not good" in line
    assert errors.keys() == {0, 2}, result.said
    for error in errors.values():
        assert error["kind"] == "TarantellaError"
        assert error["text"] == "rank 1 failed: ValueError: this batch is not good"
        assert error["seconds"] < AT_ONCE, error


def test_a_killed_rank(tmp_path):
    errors, result = fail(tmp_path, 2, "SIGKILL")
    assert result.code == 137, result.said
    assert "rank 1 (pid " in result.stderr.splitlines()[-1]
    assert errors[0]["kind"] == "PeerLostError", result.said
    assert "rank 1" in errors[0]["text"]
    assert errors[0]["seconds"] < AT_ONCE


def test_a_stopped_rank(tmp_path):
    errors, result = fail(tmp_path, 2, "SIGSTOP", TNT_TIMEOUT="5")
    assert result.code != 0
    assert errors[0]["kind"] == "DeadlineError", result.said
    assert "rank 1" in errors[0]["text"]
    assert 4 < errors[0]["seconds"] < AT_ONCE
    assert "rank 1" in result.stderr.splitlines()[-1]


def test_a_model_that_differs(tmp_path):
    errors, result = fail(tmp_path, 2, "other model")
    assert result.code == 1, result.said
    assert errors.keys() == {0, 1}
    assert errors[0]["text"] == errors[1]["text"]
    for error in errors.values():
        assert error["kind"] == "MismatchError"
        assert "the models of the ranks differ: units of Dense 'hidden' is 7 on rank 1 and 6 on rank 0" in error["text"], error
        assert error["seconds"] < AT_ONCE
    assert "MismatchError" in result.stderr.splitlines()[-1]


def test_a_rank_that_stops(tmp_path):
    """All stop with it: test_callbacks.py has more of it."""
    errors, result = fail(tmp_path, 2, "stop_training", TNT_TIMEOUT="5")
    assert result.code == 0, result.said
    assert not errors, result.said


def test_a_rank_with_fewer_batches(tmp_path):
    errors, result = fail(tmp_path, 2, "fewer batches")
    assert result.code == 1, result.said
    for error in errors.values():
        assert error["kind"] == "MismatchError", error
        assert error["text"] == "training data: batches is 3 on rank 1 and 6 on rank 0: it must be the same"


def test_a_rank_with_fewer_batches_than_can_be_known(tmp_path):
    """It would wait for others at the end of its epoch, they for it in a step: both for TNT_TIMEOUT."""
    errors, result = fail(tmp_path, 3, "fewer batches than can be known")
    assert result.code != 0 and result.seconds < 60, result.said
    assert sorted(errors) == [0, 1, 2], result.said
    for error in errors.values():
        assert error["kind"] == "MismatchError", error
        said = (
            "training data: the ranks have different numbers of batches: rank 1 has 3 in this epoch, rank 0, 2 more: give all "
        )
        assert error["text"].startswith(said), error


def catch(tmp_path, how):
    """What two ranks caught that go on after an error, and how the job ended."""
    result = run_ranks(2, RANKS / "keras/caught_failure.py", tmp_path, how).good()
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)], result


@pytest.mark.parametrize("how", ["a pipeline", "a pipeline that evaluates", "data parallel"])
def test_an_error_of_one_rank_that_its_script_catches(tmp_path, how):
    (waited, failed), result = catch(tmp_path, how)
    assert failed["kind"] == "InvalidArgumentError", result.said
    assert "these predictions are not good" in failed["text"]
    method = "evaluate" if "evaluates" in how else "fit"
    assert waited["kind"] == "AbortedError", waited
    assert waited["text"].startswith(f"rank 1: tnt.Model.{method} failed with InvalidArgumentError: "), waited
    assert "these predictions are not good" in waited["text"]
    assert waited["seconds"] < AT_ONCE, waited


def test_all_ranks_fail_alike_and_go_on(tmp_path):
    catch(tmp_path, "all")


def test_no_step_takes_the_messages_of_one_that_failed(tmp_path):
    both, result = catch(tmp_path, "messages under way")
    for error in both:
        assert "a step of the pipeline has failed before, and its messages are still under way" in error["text"], result.said
