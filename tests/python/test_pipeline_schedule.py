"""The schedules of pipelines, as tables: every task once, in an order that its messages allow, with the promised bubble."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarantella.errors import InvalidArgumentError
from tarantella.pipeline_schedule import Schedule, Task, needed_by, schedule

sizes = st.integers(1, 6)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    ranks, each, name = draw(sizes), draw(st.integers(1, 4)), draw(st.sampled_from(["gpipe", "1f1b", "interleaved"]))
    each = each if name == "interleaved" else 1
    groups = draw(st.integers(1, 5))
    return schedule(name, ranks, ranks * each, groups * ranks if each > 1 else groups)


@given(schedules())
def test_every_micro_batch_passes_every_stage_once_each_way(found):
    expected = {Task(s, m, way) for s in range(found.stages) for m in range(found.micro_batches) for way in (True, False)}
    tasks = [task for row in found.rows for task in row]
    assert len(tasks) == len(expected)
    assert set(tasks) == expected
    assert all(task.stage % found.ranks == rank for rank, row in enumerate(found.rows) for task in row)


@given(schedules())
def test_a_task_begins_when_all_that_it_needs_has_ended(found):
    for task, time in found.times.items():
        assert all(found.times[needed] < time for needed in needed_by(task, found.stages))
    for row in found.rows:
        assert [found.times[task] for task in row] == sorted({found.times[task] for task in row})


@given(schedules())
def test_the_bubble_is_that_of_the_formula(found):
    each = found.stages // found.ranks
    assert found.bubble == pytest.approx((found.ranks - 1) / (found.micro_batches * each + found.ranks - 1))


@given(sizes, st.integers(1, 20))
def test_activations_that_1f1b_holds(ranks, micro_batches):
    found = schedule("1f1b", ranks, ranks, micro_batches)
    assert [found.activations(rank) for rank in range(ranks)] == [min(micro_batches, ranks - rank) for rank in range(ranks)]
    everything = schedule("gpipe", ranks, ranks, micro_batches)
    assert {everything.activations(rank) for rank in range(ranks)} == {micro_batches}


@given(schedules())
def test_gradients_of_a_stage_are_added_in_the_order_of_micro_batches(found):
    for stage in range(found.stages):
        row = [task.micro_batch for task in found.rows[stage % found.ranks] if task.stage == stage and not task.is_forward]
        assert row == list(range(found.micro_batches))


@given(schedules())
def test_without_backward_the_order_stays(found):
    forward = found.without_backward()
    assert forward.rows == tuple(tuple(task for task in row if task.is_forward) for row in found.rows)
    assert set(forward.times) == {task for task in found.times if task.is_forward}


def test_a_table_as_text():
    assert str(schedule("1f1b", 2, 2, 3)).splitlines() == [
        "1f1b: bubble 25.0 %",
        "rank 0  F0 F1 .  B0 F2 B1 .  B2",
        "rank 1  .  F0 B0 F1 B1 F2 B2 .",
    ]
    assert str(schedule("interleaved", 2, 4, 2)).splitlines()[1].startswith("rank 0  F0.0 F1.0 F0.1 F1.1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1f2b", 2, 2, 4), "schedule is '1f2b': use 'gpipe', '1f1b' or 'interleaved'"),
        (("1f1b", 2, 3, 4), "3 stages cannot be divided evenly among 2 ranks"),
        (("gpipe", 2, 4, 4), "4 stages on 2 ranks: with schedule='gpipe' each rank has one stage. Start 4 ranks"),
        (("interleaved", 2, 4, 3), "micro_batches is 3: use a multiple of 2"),
    ],
)
def test_what_there_is_no_schedule_for(arguments, message):
    with pytest.raises(InvalidArgumentError, match="^.*" + message.replace("'", ".")):
        schedule(*arguments)
