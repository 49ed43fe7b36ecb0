"""Operations are made by all ranks, or again by those that are left, wherever each was when one was lost."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from tarantella import collectives, generations, runtime
from tarantella.errors import MismatchError, PeerLostError, UnsupportedError
from tarantella.keras.elastic.operations import NONE, Operations

LOST = PeerLostError("rank 1 died")


class FakeState:
    """Notes what happens to it. The ranks of the job are this one, rank 0, and others that have done so many operations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, others: list[int], generations_left: int = 9) -> None:
        self.events: list[Any] = []
        self.left = generations_left
        self.leaves_out = False
        self.outcome_of_others: Any = None
        self.stages_of_others = self.depth_of_others = 1
        self._stack = ExitStack()
        monkeypatch.setattr(generations, "join_next", self._join)
        monkeypatch.setattr(collectives, "all_gather", lambda own: self._gathered(own, others))
        monkeypatch.setattr(collectives, "broadcast_object", lambda own, root: own if root == 0 else self.outcome_of_others)
        monkeypatch.setattr(runtime, "get_rank", lambda: 0)
        monkeypatch.setattr(runtime, "get_size", lambda: 1 + len(others))

    def operations(self) -> Operations:
        """Those of this rank, in a stage that changes this state."""
        found = Operations()
        self._stack.enter_context(found.stage(self))
        return found

    def _gathered(self, own: Any, others: list[int]) -> Any:
        place = [self.stages_of_others, self.depth_of_others, 0]
        return np.array([own, *([done, *([0, 0, 0] if done == NONE else place)] for done in others)])

    def _join(self, meeting: Any = None) -> bool | None:
        self.events += [] if meeting is None else [meeting]
        if self.leaves_out:
            return None
        self.left -= 1
        return self.left >= 0

    def finish(self, changes: bool) -> None:
        self.finished = getattr(self, "finished", 0) + 1

    def renew(self) -> None:
        self.events.append("renew")

    def share(self, source: int | None, done: list[int], changes: bool) -> None:
        self.events.append(("share", source))
        self.changes = changes

    def settle(self) -> None:
        self.settled = runtime.get_size()


def failing(times: int, result: str = "done", error: Exception = LOST) -> Any:
    left = [error] * times

    def operation() -> str:
        if left:
            raise left.pop()
        return result

    return operation


def test_nothing_happens_where_nothing_fails(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [])
    assert state.operations().run(lambda: 5) == 5
    assert not state.events


def test_what_nobody_has_finished_is_undone_and_made_again(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0, 0])
    found = state.operations().run(failing(1), again=lambda: "again", undo=lambda: state.events.append("undo"))
    assert found == "again"
    assert state.events == ["undo", "renew", ("share", None)]


def test_a_rank_that_is_behind_takes_the_outcome(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0, 1])
    state.outcome_of_others = {"loss": 0.5}
    operations = state.operations()
    assert operations.run(failing(1)) == {"loss": 0.5}
    assert state.events == ["renew", ("share", 2)]


@pytest.mark.parametrize("changes", [True, False])
def test_all_ranks_know_whether_those_behind_lack_the_state(monkeypatch: pytest.MonkeyPatch, changes: bool):
    state = FakeState(monkeypatch, [1])
    state.operations().run(failing(1), changes=changes)
    assert state.changes is changes
    other = FakeState(monkeypatch, [0])
    operations = other.operations()
    operations.run(lambda: "first")
    operations.run(failing(1), changes=True)  # which both make again: rank 1 is behind by the first one
    assert other.changes is False


def test_a_rank_that_is_ahead_gives_the_outcome_and_makes_the_next_one_again(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0, 1])
    operations = state.operations()
    operations.run(lambda: "first")
    assert operations.run(failing(1, "second")) == "second"
    assert state.events == ["renew", ("share", 0)]


def test_a_rank_in_the_stage_before_takes_the_outcome_alone(monkeypatch: pytest.MonkeyPatch):
    """What stages change is not the same, and where one ends, all ranks have the same state."""
    state = FakeState(monkeypatch, [1])
    state.outcome_of_others, state.stages_of_others = "first", 2
    assert state.operations().run(failing(1)) == "first"
    assert (state.events, state.settled) == (["renew", ("share", None)], 2)


def test_stages_are_counted_and_end(monkeypatch: pytest.MonkeyPatch):
    state, later = FakeState(monkeypatch, [1]), FakeState(monkeypatch, [1])
    later.stages_of_others = later.depth_of_others = 2
    operations = state.operations()
    operations.run(lambda: "first")
    with operations.stage(later):
        assert operations.run(failing(1, "second")) == "second"
        assert state.events == later.events == ["renew", ("share", None)]
    state.stages_of_others = 3
    monkeypatch.setattr(collectives, "all_gather", lambda own: state._gathered(own, [2]))
    assert operations.run(failing(1, "third")) == "third"
    assert (state.events[2:], later.events[2:]) == (["renew", ("share", None)], [])


def test_ranks_where_an_inner_stage_begins_or_ends_have_the_outer_one_in_common(monkeypatch: pytest.MonkeyPatch):
    state, inner = FakeState(monkeypatch, [1]), FakeState(monkeypatch, [1])
    inner.outcome_of_others = "first"
    operations = state.operations()
    with operations.stage(inner):
        assert operations.run(failing(1)) == "first"
    assert (state.events, inner.events) == (["renew", ("share", None)], ["renew"])


def test_one_more_is_lost_meanwhile(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0])
    lose = failing(2)
    monkeypatch.setattr(state, "share", lambda source, done, changes: lose())
    assert state.operations().run(failing(1)) == "done"
    assert state.events == ["renew"] * 3


def test_a_rank_that_has_joined_late_meets_the_others_first(monkeypatch: pytest.MonkeyPatch):
    """They have joined an earlier generation, and try the operation again in this one."""
    state = FakeState(monkeypatch, [0])
    monkeypatch.setattr(generations, "_is_late", True)
    operations = state.operations()
    assert operations.run(failing(1, "first")) == "first"
    assert operations.run(failing(0, "second")) == "second"
    assert state.events == [("share", None), "renew", ("share", None)]


def test_without_a_next_generation_the_error_is_that_of_the_loss(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0], generations_left=0)
    with pytest.raises(PeerLostError, match="rank 1 died"):
        state.operations().run(failing(1))


def test_other_errors_are_no_loss(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0])
    with pytest.raises(MismatchError):
        state.operations().run(failing(1, error=MismatchError("another model")))
    assert not state.events


def test_what_runs_inside_of_an_operation_is_a_part_of_it(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [0])
    operations = state.operations()
    inner = failing(1)
    assert operations.run(lambda: operations.run(inner)) == "done"
    assert state.events == ["renew", ("share", None)]


def test_newcomers_may_join_where_the_operation_says(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [NONE])
    meeting = generations.Position(2, 5, 1)
    assert state.operations().run(failing(1), again=lambda: "again", meeting=meeting) == "again"
    assert state.events == [meeting, "renew", ("share", 0)]


def test_a_newcomer_takes_the_outcome_and_counts_on_from_the_others(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [7, 6])
    state.outcome_of_others = {"loss": 0.5}
    operations = state.operations()
    assert operations.join()
    assert state.events == ["renew", ("share", 1)]
    assert operations.run(failing(1, "eighth")) == "eighth"
    assert state.events[2:] == ["renew", ("share", 0)]  # it is as far as the first of them, and ahead of the other


def test_a_newcomer_without_which_the_others_have_gone_on(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [7])
    state.leaves_out = True
    assert not state.operations().join()
    assert not state.events


def test_newcomers_alone_cannot_go_on(monkeypatch: pytest.MonkeyPatch):
    state = FakeState(monkeypatch, [NONE])
    with pytest.raises(UnsupportedError, match="all ranks were lost"):
        state.operations().join()
