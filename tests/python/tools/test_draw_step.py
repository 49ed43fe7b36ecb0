"""The picture of a step is that of the median one, after those that warm up."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from support.checkouts import TOOLS


@pytest.fixture
def draw_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("draw_step")


def span(name: str, track: int, begin_ms: float, ms: float, **args: int) -> dict:
    return {"name": name, "ph": "X", "pid": 0, "tid": track, "ts": 1000 * begin_ms, "dur": 1000 * ms, "args": args}


def trace(steps: list[tuple[float, float]]) -> str:
    """Each step has two buckets, the second of which is ready 1 ms before the end and reduced 0.5 ms before it."""
    tracks = enumerate(("gradients", "step"))
    events = [{"name": "thread_name", "pid": 0, "tid": number, "args": {"name": name}} for number, name in tracks]
    for begin, ms in steps:
        end = begin + ms
        events += [span("step", 1, begin, ms)]
        events += [span("pack 0", 0, begin + 1, 0.5, bucket=0), span("wait 0", 0, begin + 1.5, 1, bucket=0)]
        events += [span("reduce 1", 0, end - 1, 0.25, bucket=1), span("unpack 1", 0, end - 0.75, 0.25, bucket=1)]
    return json.dumps({"traceEvents": events})


def test_the_median_step_is_drawn(draw_step, tmp_path: Path) -> None:
    file, picture = tmp_path / "trace.json", tmp_path / "step.png"
    file.write_text(trace([(0, 500), (600, 300), (1000, 10), (1020, 30), (1060, 20)]))
    said = draw_step.draw(*draw_step.read(file), picture)
    assert said.startswith("a step of 20 ms: 1.00 ms of communication, and 0.50 ms from the last gradient's arrival to ")
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_trace_without_steps_is_refused(draw_step, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(trace([(0, 500), (600, 300)]))
    with pytest.raises(SystemExit, match="no steps"):
        draw_step.read(tmp_path / "trace.json")


def test_a_file_that_is_no_trace_is_named(draw_step, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text("{")
    with pytest.raises(SystemExit, match=r"trace\.json: no timeline: not JSON"):
        draw_step.read(tmp_path / "trace.json")
