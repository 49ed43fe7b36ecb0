"""`tarantella simulate`: its reading of timelines and platforms, its predictions, and its errors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tarantella.launcher.base.words import UsageError
from tarantella.scaling import model, simulator
from tarantella.scaling.command import simulate
from tarantella.scaling.platform import SHIPPED, read_machine
from tarantella.scaling.prediction import predict
from tarantella.scaling.timeline import Bucket, Step, TimelineError, read_step

MIB = 1 << 20
PLATFORMS = sorted(SHIPPED.glob("*.xml"))
PROGRAM = (
    Path(os.environ.get("TNT_INTERNAL_SIMULATOR", "")) if "TNT_INTERNAL_SIMULATOR" in os.environ else simulator.find_simulator()
)


def timeline(folder: Path, *, steps: int = 6, buckets: int = 2, sizes: bool = True) -> Path:
    """Steps of 100 ms; bucket b is ready after 20 (b + 1) ms and arrives 5 ms later. The first step takes 10 times as long."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "rank 0"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "step"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 1, "args": {"name": "gradients"}},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 2, "args": {"name": "metrics"}},
    ]
    begin = 1e6
    for step in range(steps):
        slow = 10 if step == 0 else 1
        events.append({"ph": "X", "name": f"step {step}", "pid": 0, "tid": 0, "ts": begin, "dur": slow * 1e5})
        for bucket in range(buckets):
            at = begin + slow * 2e4 * (bucket + 1)
            size = {"bytes": MIB * (bucket + 1)} if sizes else {}
            events.append(
                {"ph": "i", "name": f"ready {bucket}", "pid": 0, "tid": 1, "ts": at, "args": {"bucket": bucket, **size}}
            )
            span = {
                "ph": "X",
                "name": f"unpack {bucket}",
                "pid": 0,
                "tid": 1,
                "ts": at + 4e3,
                "dur": 1e3,
                "args": {"bucket": bucket},
            }
            events.append(span)
        if buckets and sizes:  # metrics are a small bucket at the end of the step
            metrics = {"bucket": 0, "bytes": 16}
            events.append({"ph": "i", "name": "ready 0", "pid": 0, "tid": 2, "ts": begin + slow * 9e4, "args": metrics})
        begin += slow * 1e5
    file = folder / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    return file


def test_a_step_is_the_median_of_those_after_the_first(tmp_path):
    step = read_step(timeline(tmp_path))
    assert step.buckets == (Bucket(MIB, pytest.approx(0.02)), Bucket(2 * MIB, pytest.approx(0.04)))
    assert step.rest == pytest.approx(0.055)  # bucket 1 has arrived after 45 of 100 ms
    assert step.compute == pytest.approx(0.095)
    assert (step.measured, step.ranks) == (pytest.approx(0.1), 1)


def test_buckets_go_one_after_another_and_only_what_backward_does_not_hide_is_exposed():
    step = Step((Bucket(1, 0.010), Bucket(1, 0.020)), rest=0.030, ranks=1, measured=0.05)
    # 15 ms each: the first goes from 10 to 25, the second from 25 to 40; backward ends at 20
    (weak,) = predict(step, [4], lambda ranks, size: (0.015, "link"), strong=False)
    assert weak.exposed == pytest.approx(0.020)
    assert weak.step == pytest.approx(0.070)
    assert weak.speed_up == pytest.approx(4 * 0.050 / 0.070)
    assert weak.limit == "link"
    # a quarter of the work: ready after 2.5 and 5 ms; from 2.5 to 17.5, to 32.5
    (strong,) = predict(step, [4], lambda ranks, size: (0.015, "link"), strong=True)
    assert strong.exposed == pytest.approx(0.0275)
    assert strong.step == pytest.approx(0.050 / 4 + 0.0275)
    assert strong.efficiency == pytest.approx(0.050 / strong.step / 4)


def test_hidden_communication_is_no_limit():
    step = Step((Bucket(1, 0.010), Bucket(1, 0.050)), rest=0.050, ranks=1, measured=0.1)
    (found,) = predict(step, [8], lambda ranks, size: (0.001, "latency"), strong=False)
    assert found.limit == "compute"
    assert found.efficiency == pytest.approx(0.1 / 0.101)


@pytest.mark.parametrize("file", PLATFORMS, ids=lambda file: file.stem)
def test_shipped_platforms_have_room_for_1024_ranks(file):
    machine = read_machine(file)
    assert machine.max_ranks >= 1024
    times = [model.all_reduce(machine, 1024, size).seconds for size in (1024, 64 * 1024, MIB, 64 * MIB)]
    assert times == sorted(times)
    lower_bound = 2 * 64 * MIB / machine.link * (1 - machine.ranks_per_node / 1024)  # what a node must send and receive
    assert times[-1] >= lower_bound


def test_the_command_prints_every_number_of_ranks(tmp_path):
    text = simulate(
        ["--timeline", str(timeline(tmp_path)), "--platform", "ethernet-10g", "--ranks", "1,4,64", "--model", "analytic"]
    )
    assert "simulated: ethernet-10g" in text
    assert "the analytic model" in text
    ones = [line.split() for line in text.splitlines() if line.split()[:1] == ["1"]]
    assert [line[3:5] for line in ones] == [["1.00", "100.0%"]] * 2
    found = json.loads(
        simulate(
            [
                "--timeline",
                str(tmp_path / "trace.json"),
                "--platform",
                "ethernet-10g",
                "--ranks",
                "4,64",
                "--model",
                "analytic",
                "--json",
            ]
        )
    )
    assert [p["ranks"] for p in found["strong"]] == [4, 64]
    assert found["strong"][0]["efficiency"] > found["strong"][1]["efficiency"]


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "scaling.svg"
    trace = str(timeline(tmp_path))
    simulate(
        ["--timeline", trace, "--platform", "dragonfly-100g", "--ranks", "1,8", "--model", "analytic", "--plot", str(picture)]
    )
    assert "simulated" in picture.read_text()


def refusal(*words: object) -> str:
    with pytest.raises(UsageError) as refused:
        simulate([str(word) for word in words])
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_input_that_cannot_be_used_gets_one_sentence(tmp_path):
    good = timeline(tmp_path)
    (tmp_path / "text").write_text("neither XML nor JSON")
    (tmp_path / "other.xml").write_text("<html/>")
    ranks = ("--ranks", "2")
    assert "no platform file" in refusal("--timeline", good, "--platform", tmp_path / "text", *ranks)
    assert "<html>, not <platform>" in refusal("--timeline", good, "--platform", tmp_path / "other.xml", *ranks)
    assert "none of the platforms dragonfly-100g, " in refusal("--timeline", good, "--platform", "cray", *ranks)
    assert "not JSON" in refusal("--timeline", tmp_path / "text", "--platform", "ethernet-10g", *ranks)
    assert "at least one rank" in refusal("--timeline", good, "--platform", "ethernet-10g", "--ranks", "0")
    assert "1024 in all" in refusal("--timeline", good, "--platform", "ethernet-10g", "--ranks", "2048")


@pytest.mark.parametrize(
    ("made", "says"), [({"buckets": 0}, "no buckets"), ({"steps": 0}, "no steps"), ({"sizes": False}, "no sizes")]
)
def test_timelines_that_lack_something_are_refused(tmp_path, made, says):
    with pytest.raises(TimelineError, match=says):
        read_step(timeline(tmp_path, **made))


needs_simgrid = pytest.mark.skipif(
    PROGRAM is None or shutil.which(PROGRAM) is None, reason="built without SimGrid (TNT_SIMGRID=ON, Debian: libsimgrid-dev)"
)


@needs_simgrid
@pytest.mark.parametrize("file", PLATFORMS, ids=lambda file: file.stem)
def test_simulated_sums_are_right(file):
    command = [PROGRAM, "all_reduce", "--backend", "simulated", "--platform", file, "--ranks", "13", "--sizes", "1K,256K"]
    done = subprocess.run([*map(str, command), "--format", "jsonl"], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["check"] for row in rows if "check" in row] == ["ok", "ok"]


@needs_simgrid
@pytest.mark.parametrize("file", PLATFORMS, ids=lambda file: file.stem)
def test_simulated_times_keep_to_what_the_links_allow(file):
    machine = read_machine(file)
    ranks = 4 * machine.ranks_per_node
    seconds = simulator.all_reduce_seconds(PROGRAM, file, ranks, [4 * MIB])[4 * MIB]
    bound = 2 * 4 * MIB * (1 - 1 / 4) / machine.link
    assert seconds >= 0.99 * bound


@needs_simgrid
@pytest.mark.parametrize("ranks", [4, 32])
def test_the_formulas_are_close_to_the_simulation(ranks):
    file = SHIPPED / "ethernet-10g.xml"
    simulated = simulator.all_reduce_seconds(PROGRAM, file, ranks, [1024, 64 * 1024, MIB])
    for size, seconds in simulated.items():
        assert model.all_reduce(read_machine(file), ranks, size).seconds == pytest.approx(seconds, rel=0.2)


@needs_simgrid
def test_simulator_refuses_bad_platforms(tmp_path):
    (tmp_path / "text").write_text("no XML")
    for file, ranks, says in ((tmp_path / "text", 2, "no platform file"), (SHIPPED / "ethernet-10g.xml", 1025, "1024 in all")):
        command = [PROGRAM, "all_reduce", "--backend", "simulated", "--platform", file, "--ranks", ranks]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1
