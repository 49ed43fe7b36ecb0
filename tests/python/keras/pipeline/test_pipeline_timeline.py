"""The timeline of a pipeline shows what each rank computed when, and what it waited for."""

from __future__ import annotations

import itertools
import re

import pytest

from support.launch import RANKS, run_ranks
from tarantella.pipeline_schedule import needed_by, schedule
from tarantella.scaling import pipeline_timeline
from tarantella.scaling.command import simulate

STEPS, WIDTH = 4, 4
STAGES = {"1f1b": 2, "interleaved": 4}
MICRO_BATCHES = {"1f1b": 3, "interleaved": 4}


@pytest.fixture(scope="module", params=STAGES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def file(name, tmp_path_factory):
    file = tmp_path_factory.mktemp("timeline") / "trace.json"
    arguments = name, STAGES[name], MICRO_BATCHES[name]
    run_ranks(2, RANKS / "keras/pipeline/timeline.py", *arguments, launcher_options=["--timeline", file]).good()
    return file


@pytest.fixture(scope="module")
def steps(file):
    """Of each rank: its training steps."""
    spans = pipeline_timeline.spans_of(pipeline_timeline.read_events(file))
    return [list(pipeline_timeline.steps_of(spans[rank])) for rank in range(2)]


def test_each_rank_runs_its_row_of_the_schedule_in_each_step(name, steps):
    rows = schedule(name, 2, STAGES[name], MICRO_BATCHES[name]).rows
    for row, of_rank in zip(rows, steps, strict=True):
        assert [list(step.tasks) for step in of_rank] == [list(row)] * STEPS
        for step in of_rank:
            spans = list(step.tasks.values())
            assert step.step.begin <= spans[0].begin
            assert spans[-1].end <= step.step.end
            assert all(span.begin < span.end for span in spans)
            assert all(before.end <= after.begin + 1e-9 for before, after in itertools.pairwise(spans))  # rounding


def test_a_task_begins_after_those_that_it_needs(name, steps):
    for of_ranks in zip(*steps, strict=True):
        tasks = {task: span for step in of_ranks for task, span in step.tasks.items()}
        for task, span in tasks.items():
            for needed in needed_by(task, STAGES[name]):
                assert tasks[needed].begin < span.begin  # a message leaves before its task ends


def test_messages_have_sizes(name, steps):
    row = WIDTH * 4
    samples = 2 if name == "1f1b" else 1  # of six in four micro-batches, some have two
    for of_rank in steps:
        for step in of_rank:
            for task, size in step.received.items():
                gets = task.stage > 0 if task.is_forward else task.stage < STAGES[name] - 1
                assert size in ((samples * row, 2 * row) if gets else (0,)), task


def test_it_can_be_simulated(name, file):
    arguments = ["--timeline", str(file), "--platform", "fat-tree-100g", "--ranks", "2,8,64", "--micro-batches", "64"]
    text = simulate([*arguments, "--schedule", name, "--stages-per-rank", str(STAGES[name] // 2)])
    assert f"has {STAGES[name]} stages on 2 ranks and {MICRO_BATCHES[name]} micro-batches" in text
    assert re.search(rf"^ +64 +{32 * STAGES[name]} +64 ", text, re.MULTILINE)
