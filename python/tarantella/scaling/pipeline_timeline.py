"""The parts of one step of a pipeline that ran: how long its tasks took, and how long its ranks waited for each other."""

import re
import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tarantella.pipeline_schedule import Task
from tarantella.scaling.timeline import WARM_UP_STEPS, TimelineError, read_events, track_names

_TASK = re.compile(r"([FB])(\d+) of stage (\d+)")
_BYTES = re.compile(r", (\d+) bytes$")


class Span(NamedTuple):
    """A part of a rank's time, in seconds."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        """In seconds."""
        return self.end - self.begin


@dataclass(frozen=True)
class PipelineStep:
    """A step of one pipeline: medians over the steps of a run. Times in seconds."""

    ranks: int
    micro_batches: int
    forward: tuple[float, ...]
    """Of one micro-batch, through each stage."""
    backward: tuple[float, ...]
    message: int
    """Bytes that a stage gets from another for one micro-batch, forward or backward: the largest."""
    rest: float
    """From the end of the last task to the end of the step: the optimizer, metrics, callbacks."""
    measured: float
    """The whole step."""
    bubble: float
    """The part of the ranks' time in which they waited, from the first task of a step to the end of the last."""


@dataclass
class RankStep:
    """A step of one rank: its tasks in their order, and the bytes that each got from other ranks."""

    step: Span
    tasks: dict[Task, Span]
    received: dict[Task, int]


def has_pipeline(events: list[dict[str, Any]]) -> bool:
    """Whether the timeline is of a pipeline."""
    return "pipeline" in track_names(events).values()


def read_pipeline(file: Path) -> PipelineStep:
    """The step of the first pipeline, if there are replicas. Raises TimelineError."""
    return pipeline_in(file, read_events(file))


def pipeline_in(file: Path, events: list[dict[str, Any]]) -> PipelineStep:
    """As `read_pipeline`, of the events that were read from the file."""
    by_rank = {rank: list(steps_of(spans)) for rank, spans in sorted(spans_of(events).items())}
    ranks: list[list[RankStep]] = []
    known: set[int] = set()
    for steps in by_rank.values():
        stages = {task.stage for one in steps for task in one.tasks}
        if known and 0 in stages:
            break  # of the second pipeline
        ranks.append(steps)
        known |= stages
    count = min(map(len, ranks), default=0)
    if count == 0:
        raise TimelineError(f"{file}: its pipeline has no step with a backward pass: train with fit")
    if known != set(range(len(known))):
        raise TimelineError(f"{file}: stages of its pipeline are missing: a rank has not written its part")
    used = range(min(WARM_UP_STEPS, count - 1), count)
    return _median([[steps[i] for steps in ranks] for i in used], sorted(known))


def spans_of(events: list[dict[str, Any]]) -> dict[Any, dict[str, list[tuple[str, Span]]]]:
    """The spans of each rank and track, in the order of time."""
    tracks = track_names(events)
    found: defaultdict[Any, defaultdict[str, list[tuple[str, Span]]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        track = tracks.get((event.get("pid"), event.get("tid")))
        if track in ("step", "pipeline", "messages") and "ts" in event:
            begin = event["ts"] * 1e-6
            found[event["pid"]][track].append((event["name"], Span(begin, begin + event.get("dur", 0) * 1e-6)))
    for rank_spans in found.values():
        for spans in rank_spans.values():
            spans.sort(key=lambda named: named[1])
    return {rank: dict(rank_spans) for rank, rank_spans in found.items()}


def steps_of(spans: dict[str, list[tuple[str, Span]]]) -> Iterator[RankStep]:
    """The training steps of a rank; a step of an evaluation has no backward pass. Raises TimelineError."""
    steps = [RankStep(span, {}, {}) for _, span in spans.get("step", [])]
    begins = [one.step.begin for one in steps]
    messages = spans.get("messages", [])
    arrivals = [span.end for _, span in messages]
    before = float("-inf")
    for name, span in spans.get("pipeline", []):
        index, matched = bisect_right(begins, span.begin) - 1, _TASK.fullmatch(name)
        if matched and index >= 0 and span.end <= steps[index].step.end:
            task = Task(int(matched[3]), int(matched[2]), matched[1] == "F")
            if task in steps[index].tasks:
                raise TimelineError(f"a span of the timeline has {name} twice: compile the model with steps_per_execution=1")
            steps[index].tasks[task] = span
            own = messages[bisect_right(arrivals, before) : bisect_right(arrivals, span.end)]
            steps[index].received[task] = sum(int(size[1]) for text, _ in own if (size := _BYTES.search(text)))
        before = span.end
    return (one for one in steps if any(not task.is_forward for task in one.tasks))


def _median(steps: Sequence[Sequence[RankStep]], stages: Sequence[int]) -> PipelineStep:
    """steps: of each step its ranks."""
    all_tasks = [(task, span.length) for ranks in steps for one in ranks for task, span in one.tasks.items()]
    received = [size for ranks in steps for one in ranks for size in one.received.values()]

    def through(is_forward: bool) -> tuple[float, ...]:
        stage_times = [[t for task, t in all_tasks if (task.stage, task.is_forward) == (stage, is_forward)] for stage in stages]
        return tuple(map(statistics.median, stage_times))

    windows, bubbles = [], []
    for ranks in steps:
        spans = [span for one in ranks for span in one.tasks.values()]
        window = Span(min(span.begin for span in spans), max(span.end for span in spans))
        windows.append(window)
        bubbles.append(1 - sum(span.length for span in spans) / window.length / len(ranks))
    ends = [max(one.step.end for one in ranks) for ranks in steps]
    return PipelineStep(
        ranks=len(steps[0]),
        micro_batches=max(task.micro_batch for task, _ in all_tasks) + 1,
        forward=through(True),
        backward=through(False),
        message=max(received),
        rest=statistics.median(end - window.end for end, window in zip(ends, windows, strict=True)),
        measured=statistics.median(max(one.step.length for one in ranks) for ranks in steps),
        bubble=statistics.median(bubbles),
    )
