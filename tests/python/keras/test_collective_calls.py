"""A method of `tnt.Model` that one rank alone calls, under `if tnt.is_master_rank():` mostly: the error says what it is."""

from __future__ import annotations

import pytest

from support.launch import RANKS, run_ranks

SCRIPT = RANKS / "keras" / "collective_calls.py"
HINT = "tnt.Model.{} is collective: every rank must call it, so it must not stand under `if tnt.is_master_rank():`"


@pytest.mark.parametrize(
    ("n", "method", "rank", "then", "legacy", "error"),
    [
        (2, "evaluate", 0, "end", "0", "PeerLostError: rank 1 left the job"),
        (3, "predict", 0, "sleep", "1", "DeadlineError: rank"),
        (2, "save", 0, "sleep", "0", "DeadlineError: rank 1 did not arrive within 2 s"),
        (3, "fit", 1, "end", "0", "PeerLostError: rank"),
        (2, "train_on_batch", 0, "end", "1", "PeerLostError: rank 1 left the job"),
    ],
)
def test_a_call_that_others_do_not_make_is_named(n, method, rank, then, legacy, error):
    env = {"TNT_TIMEOUT": "2"} if then == "sleep" else {}
    result = run_ranks(n, SCRIPT, method, rank, then, env={"TF_USE_LEGACY_KERAS": legacy, **env})
    assert result.code == 1, result.said
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("tarantella: rank "))
    assert error in line, result.said
    assert line.endswith(HINT.format(method)), result.said


def test_ranks_that_call_different_methods_are_told_which():
    result = run_ranks(2, SCRIPT, "evaluate", 0, "predict")
    assert result.code == 1, result.said
    both = "MismatchError: rank 1 called tnt.Model.predict while rank 0 called tnt.Model.evaluate. "
    assert both in result.stderr, result.said


def test_methods_that_all_ranks_call_are_none_of_this():
    run_ranks(3, SCRIPT, "evaluate", -1, "all").good()
