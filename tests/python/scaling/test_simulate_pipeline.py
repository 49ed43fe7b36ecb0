"""`tarantella simulate` for pipelines: its reading of timelines, its predictions, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarantella.launcher.base.words import UsageError
from tarantella.pipeline_schedule import begins, schedule
from tarantella.scaling import model
from tarantella.scaling.command import simulate
from tarantella.scaling.pipeline import predict_pipeline
from tarantella.scaling.pipeline_timeline import PipelineStep, read_pipeline
from tarantella.scaling.platform import SHIPPED, Machine, read_machine
from tarantella.scaling.timeline import TimelineError

FORWARD, BACKWARD, REST = (1e-3, 2e-3), (2e-3, 5e-3), 3e-3
"""Seconds of two stages, and of the end of a step."""

FREE = Machine(4096, 1, link=1e30, latency=0, overhead=0, node_rate=1e30, node_latency=0, memory=0, leaf_nodes=1, taper=1)
"""Messages take no time."""


def timeline(folder: Path, *, micro_batches: int = 3, steps: int = 5, replicas: int = 1, training: bool = True) -> Path:
    """A pipeline of two ranks by 1f1b. The first step takes longer; after each, rank 0 evaluates."""
    events: list[dict[str, object]] = []
    table = schedule("1f1b", 2, 2, micro_batches)

    def length(task):
        return (FORWARD if task.is_forward else BACKWARD)[task.stage]

    begin = begins(table.rows, 2, length)
    window = max(time + length(task) for task, time in begin.items())
    for rank in range(2 * replicas):
        for tid, track in enumerate(("step", "messages", "pipeline")):
            events.append({"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": track}})

        def span(name, track, at, seconds, rank=rank):
            events.append({"ph": "X", "name": name, "pid": rank, "tid": track, "ts": at * 1e6, "dur": seconds * 1e6})

        for step in range(steps):
            slow, start = (10 if step == 0 else 1) * (1 if rank < 2 else 7), 1.0 + 10 * step
            span(f"step {step}", 0, start, slow * (window + REST))
            for task in table.rows[rank % 2]:
                if not (training or task.is_forward):
                    continue
                at = start + slow * begin[task]
                if task.is_forward and task.stage == 1:
                    span(f"the output of 'a' (micro-batch {task.micro_batch}, stage 0 to 1), 640 bytes", 1, at - 1e-6, 1e-6)
                span(f"{task} of stage {task.stage}", 2, at, slow * length(task))
            span("F0 of stage 0", 2, start + 5, 0.1)  # evaluates
    file = folder / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    return file


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_is_the_median_of_the_first_pipeline(tmp_path, replicas):
    step = read_pipeline(timeline(tmp_path, replicas=replicas))
    assert (step.ranks, step.micro_batches, step.message) == (2, 3, 640)
    assert step.forward == pytest.approx(FORWARD)
    assert step.backward == pytest.approx(BACKWARD)
    assert step.rest == pytest.approx(REST)
    window = step.measured - step.rest
    assert step.bubble == pytest.approx(1 - 3 * (sum(FORWARD) + sum(BACKWARD)) / window / 2)


def test_the_timeline_s_own_step_is_predicted(tmp_path):
    step = read_pipeline(timeline(tmp_path))
    (found,) = predict_pipeline(step, FREE, "1f1b", [2], 3, 1)
    assert found.step == pytest.approx(step.measured)
    assert found.bubble == pytest.approx(step.bubble)
    assert found.messages == 0
    assert found.speed_up == pytest.approx((3 * 10e-3 + REST) / step.measured)


@given(
    ranks=st.integers(1, 8),
    groups=st.integers(1, 4),
    each=st.integers(1, 3),
    name=st.sampled_from(["gpipe", "1f1b", "interleaved"]),
)
def test_equal_stages_have_the_schedule_s_bubble(ranks, groups, each, name):
    each = each if name == "interleaved" else 1
    step = PipelineStep(1, 1, (1e-3,), (1e-3,), 1 << 20, 0.0, 1.0, 0.0)
    micro_batches = groups * ranks
    (found,) = predict_pipeline(step, FREE, name, [ranks], micro_batches, each)
    assert found.bubble == pytest.approx(found.schedule_bubble)
    assert found.schedule_bubble == pytest.approx((ranks - 1) / (micro_batches * each + ranks - 1))
    assert found.speed_up == pytest.approx(ranks * (1 - found.schedule_bubble))


def test_messages_cost_what_the_machine_says():
    machine = read_machine(SHIPPED / "fat-tree-100g.xml")
    step = PipelineStep(2, 1, (1e-3, 1e-3), (2e-3, 2e-3), 1 << 20, 0.0, 1.0, 0.0)
    near, far = model.message(machine, 0, 1, 1 << 20), model.message(machine, 3, 4, 1 << 20)
    (found,) = predict_pipeline(step, machine, "1f1b", [2], 1, 1)
    assert found.messages == pytest.approx(2 * near)  # forth and back
    (found,) = predict_pipeline(step, machine, "gpipe", [machine.ranks_per_node + 1], 1, 1)
    assert found.messages == pytest.approx(2 * ((machine.ranks_per_node - 1) * near + far))


def command(file: Path, *words: str) -> str:
    return simulate(["--timeline", str(file), "--platform", "fat-tree-100g", *words])


def test_the_command_prints_every_number_of_ranks(tmp_path):
    file = timeline(tmp_path)
    text = command(file, "--ranks", "2,8,64", "--micro-batches", "256")
    assert "each takes 3.00 ms forward and 7.00 ms back through all stages, and up to 640 bytes between two" in text
    assert [line.split()[:3] for line in text.splitlines()[-3:]] == [[n, n, "256"] for n in ("2", "8", "64")]
    found = json.loads(command(file, "--ranks", "8", "--stages-per-rank", "2", "--micro-batches", "16", "--json"))
    assert [(p["ranks"], p["stages"], p["micro_batches"]) for p in found["interleaved"]] == [(8, 16, 16)]


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    command(timeline(tmp_path), "--ranks", "2,8", "--plot", str(tmp_path / "scaling.svg"))
    assert "simulated" in (tmp_path / "scaling.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ranks", "4", "--stages-per-rank", "2"), "use a multiple of 4"),
        (("--ranks", "4", "--stages-per-rank", "2", "--schedule", "gpipe"), "8 stages on 4 ranks"),
        (("--ranks", "2", "--model", "simulated"), "is of a pipeline, for which --model is analytic"),
        (("--ranks", "2", "--micro-batches", "0"), "'0' is not a number from 1 on"),
        (("--ranks", "100000"), "ranks do not fit"),
    ],
)
def test_what_is_refused(tmp_path, words, said):
    with pytest.raises(UsageError, match=said):
        command(timeline(tmp_path), *words)


def test_a_run_without_training_is_refused(tmp_path):
    with pytest.raises(TimelineError, match="no step with a backward pass: train with fit"):
        read_pipeline(timeline(tmp_path, training=False))


def test_several_steps_in_one_call_are_refused(tmp_path):
    file = timeline(tmp_path)
    events = json.loads(file.read_text())["traceEvents"]
    last = next(event for event in reversed(events) if event["name"] == "B2 of stage 0")
    file.write_text(json.dumps({"traceEvents": [*events, {**last, "ts": last["ts"] + last["dur"]}]}))
    with pytest.raises(TimelineError, match="has B2 of stage 0 twice: compile the model with steps_per_execution=1"):
        read_pipeline(file)


def test_a_timeline_without_a_rank_s_part_is_refused(tmp_path):
    file = timeline(tmp_path)
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event["pid"] != 0]
    file.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(TimelineError, match="stages of its pipeline are missing"):
        read_pipeline(file)


@pytest.mark.parametrize("flag", ["--schedule=gpipe", "--micro-batches=4", "--stages-per-rank=2"])
def test_flags_of_pipelines_are_refused_without_one(tmp_path, flag):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(UsageError, match=f"{flag.split('=')[0]} is for a pipeline"):
        command(file, "--ranks", "2", flag)
