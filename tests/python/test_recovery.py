"""A function is called again from the last commit, wherever each rank was when one was lost. The other ranks are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tarantella import collectives, generations, recovery, runtime
from tarantella.errors import AbortedError, PeerLostError, UnsupportedError

NONE = -1


class Job:
    """This rank is rank 0 of two, and the other one has come to these trainings and commits, one at each question."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *others: tuple[int, int], is_newcomer: bool = False) -> None:
        self.others = list(others)
        self.joins: list[Any] = []  # the meeting of each, or an answer to give
        self.answers: list[bool | None] = []
        self.events: list[Any] = []
        self.is_newcomer = is_newcomer
        monkeypatch.setattr(generations, "is_elastic", lambda: True)
        monkeypatch.setattr(generations, "is_newcomer", lambda: self.is_newcomer)
        monkeypatch.setattr(generations, "has_joined", lambda: setattr(self, "is_newcomer", False))
        monkeypatch.setattr(generations, "begin_training", lambda: 1)
        monkeypatch.setattr(generations, "join_next", self._join)
        monkeypatch.setattr(generations, "refusal", UnsupportedError)
        monkeypatch.setattr(collectives, "all_gather", self._gather)
        monkeypatch.setattr(collectives, "barrier", lambda: None)
        monkeypatch.setattr(collectives, "broadcast_object", lambda own, root: own if root == 0 else self.of_other)
        monkeypatch.setattr(generations.Door, "is_knocked_at", lambda self, position: False)
        monkeypatch.setattr(runtime, "get_size", lambda: 2)
        monkeypatch.setattr(runtime, "is_master_rank", lambda: True)
        monkeypatch.setattr(runtime, "world", lambda: self)
        self.of_other: Any = None

    def abort(self, why: str) -> None:
        self.events.append(why)

    def _join(self, meeting: Any = None) -> bool | None:
        self.joins.append(meeting)
        return self.answers.pop(0) if self.answers else True

    def _gather(self, own: Any) -> Any:
        other = self.others.pop(0) if self.others else own[:2]
        return np.array([own, [*other, 0]])


class Count(recovery.Values):
    """A state that notes from which rank it comes."""

    def __init__(self) -> None:
        self.roots: list[int] = []
        self.resets = 0
        super().__init__(count=0)

    def sync(self, root: int = 0) -> None:
        self.roots.append(root)
        if root == 1:
            self.count = 100
        self.save()

    def on_reset(self) -> None:
        self.resets += 1


def losing(state: Count, times: int, error: Exception, commits: bool = True) -> Any:
    """Counts; the first calls fail after that."""
    left = [times]

    def function() -> int:
        state.count += 1
        if commits:
            state.commit()
        state.count += 10
        if left[0]:
            left[0] -= 1
            raise error
        return state.count

    return function


def test_the_function_goes_on_from_the_last_commit(monkeypatch: pytest.MonkeyPatch):
    job, state = Job(monkeypatch), Count()
    assert recovery.run(state, losing(state, 2, PeerLostError("rank 1 died"))) == 13  # 1, 2 and 3 were committed
    assert (job.joins, state.roots, state.resets) == ([None, None], [0, 0, 0], 2)


def test_a_rank_that_has_committed_more_often_gives_its_state(monkeypatch: pytest.MonkeyPatch):
    Job(monkeypatch, (1, 0), (1, 2)), (state := Count())
    assert recovery.run(state, losing(state, 1, PeerLostError("rank 1 died"))) == 111
    assert state.roots == [0, 1]
    assert state.commits == 4  # two, that of the function, and that of its end


def test_others_that_have_gone_on_show_that_all_came_to_the_end(monkeypatch: pytest.MonkeyPatch):
    job, state = Job(monkeypatch, (1, 0), (2, 0)), Count()
    monkeypatch.setattr(collectives, "barrier", lambda: losing(state, 1, PeerLostError("rank 1 died"), commits=False)())
    assert recovery.run(state, lambda: setattr(state, "count", 5) or "done") == "done"
    assert state.count == 5  # and not what it was in the last commit of the function
    assert len(job.joins) == 1


def test_ranks_that_have_gone_on_wait_for_the_others(monkeypatch: pytest.MonkeyPatch):
    Job(monkeypatch, (0, 7), (0, 7), (1, 0)), (state := Count())
    assert recovery.run(state, lambda: "done") == "done"
    assert state.roots == [0]


def test_a_loss_is_seen_behind_other_errors(monkeypatch: pytest.MonkeyPatch):
    Job(monkeypatch), (state := Count())
    error = ValueError("a callback failed")
    error.__context__ = PeerLostError("rank 1 died")
    assert recovery.run(state, losing(state, 1, error)) == 12


def test_an_error_of_the_script_is_raised(monkeypatch: pytest.MonkeyPatch):
    job, state = Job(monkeypatch), Count()
    with pytest.raises(ValueError, match="a fault"):
        recovery.run(state, losing(state, 1, ValueError("a fault")))
    assert job.joins == []


def test_without_a_next_generation_the_loss_is_raised(monkeypatch: pytest.MonkeyPatch):
    job, state = Job(monkeypatch), Count()
    job.answers = [False]
    with pytest.raises(PeerLostError, match="rank 1 died"):
        recovery.run(state, losing(state, 1, PeerLostError("rank 1 died")))


def test_the_master_lets_newcomers_in_at_a_commit(monkeypatch: pytest.MonkeyPatch):
    job, state = Job(monkeypatch), Count()
    asked = [False, True]
    monkeypatch.setattr(generations.Door, "is_knocked_at", lambda self, position: bool(asked) and asked.pop(0))

    def function() -> int:
        while state.count < 3:
            state.count += 1
            state.commit()
        return state.count

    assert recovery.run(state, function) == 3
    assert job.events == ["ranks join"]
    assert job.joins == [generations.Position(0, 3, 1)]


def test_a_newcomer_asks_until_it_is_let_in(monkeypatch: pytest.MonkeyPatch):
    job, state = Job(monkeypatch, (1, 4), is_newcomer=True), Count()
    job.answers, job.of_other = [None, None, True], ["count"]
    monkeypatch.setattr(generations, "position_of_others", lambda to_meet: generations.Position(0, 4, 1))
    renewed: list[int] = []
    assert recovery.run(state, lambda: state.count, lambda: renewed.append(1)) == 100
    assert (state.roots, state.resets, renewed, job.is_newcomer) == ([1], 0, [1], False)


@pytest.mark.parametrize(("training", "described"), [(1, ["other"]), (2, ["count"])])
def test_a_newcomer_that_is_not_like_the_others_is_refused(
    monkeypatch: pytest.MonkeyPatch, training: int, described: list[str]
):
    job, state = Job(monkeypatch, (1, 4), is_newcomer=True), Count()
    job.answers, job.of_other = [None, True], described
    monkeypatch.setattr(generations, "position_of_others", lambda to_meet: generations.Position(0, 4, training))
    with pytest.raises(UnsupportedError, match="other values or variables" if training == 1 else "in training 2"):
        recovery.run(state, lambda: state.count)


def test_newcomers_alone_have_no_state(monkeypatch: pytest.MonkeyPatch):
    Job(monkeypatch, (1, NONE), is_newcomer=True), (state := Count())
    with pytest.raises(UnsupportedError, match="all ranks were lost that had the state"):
        recovery.run(state, lambda: state.count)


def test_a_call_inside_of_the_function_is_refused(monkeypatch: pytest.MonkeyPatch):
    Job(monkeypatch), (state := Count())
    with pytest.raises(UnsupportedError, match="call it before or after"):
        recovery.run(state, lambda: recovery.run(Count(), lambda: None))
    assert recovery.run(state, lambda: "again") == "again"


def test_in_another_job_the_function_is_called_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generations, "is_elastic", lambda: False)
    state = Count()
    with pytest.raises(AbortedError):
        recovery.run(state, losing(state, 1, AbortedError("a rank failed")))
    assert state.roots == [0]
