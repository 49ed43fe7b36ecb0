"""The parts of one step of a real run: when each bucket was ready, and how long the rest took."""

import json
import statistics
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARM_UP_STEPS = 2  # the first steps trace, allocate and measure


class TimelineError(Exception):
    """The file is no timeline that can be used; the text says why."""


@dataclass(frozen=True)
class Bucket:
    bytes: int
    ready: float
    """Seconds after the begin of the step."""


@dataclass(frozen=True)
class Step:
    """A step on one rank: the median over the steps of a run."""

    buckets: tuple[Bucket, ...]
    """The buckets in the order in which they are reduced."""
    rest: float
    """Seconds from the last bucket's arrival to the end of the step: the optimizer, metrics, callbacks."""
    ranks: int
    measured: float
    """The whole step as it was, with its communication."""

    @property
    def backward(self) -> float:
        """Seconds until the last gradient exists."""
        return max(bucket.ready for bucket in self.buckets)

    @property
    def compute(self) -> float:
        """The time of a step without communication."""
        return self.backward + self.rest

    @property
    def bytes(self) -> int:
        return sum(bucket.bytes for bucket in self.buckets)

    def scaled(self, factor: float) -> "Step":
        """The same step on so much of the data."""
        buckets = tuple(Bucket(bucket.bytes, bucket.ready * factor) for bucket in self.buckets)
        return Step(buckets, self.rest * factor, self.ranks, self.measured)


def read_step(file: Path) -> Step:
    """The step of rank 0. Raises TimelineError."""
    return step_in(file, read_events(file))


def step_in(file: Path, events: list[dict[str, Any]]) -> Step:
    """As `read_step`, of the events that were read from the file."""
    tracks = track_names(events)
    ranks = len({e.get("pid") for e in events if e.get("name") == "process_name"})
    steps = sorted((e["ts"], e["ts"] + e.get("dur", 0)) for e in events if _rank_0_track(e, tracks) == "step")
    buckets = [e for e in events if e.get("pid") == 0 and "bucket" in e.get("args", {})]
    if not steps:
        raise TimelineError(
            f"{file}: no steps: write it with `tarantella -n 2 --timeline FILE`; one rank alone reduces nothing"
        )
    if not buckets:
        raise TimelineError(f"{file}: no buckets: the run reduced no gradients (a tnt.Model must be trained by fit)")
    if not any("bytes" in e["args"] for e in buckets):
        raise TimelineError(f"{file}: its buckets have no sizes: it was written by an older Tarantella; write it anew")
    sizes: defaultdict[Any, int] = defaultdict(int)
    for event in buckets:
        sizes[event.get("tid")] += event["args"].get("bytes", 0)
    gradients = max(sizes, key=lambda track: sizes[track])  # others, such as metrics, are part of the rest
    return _median_step(file, steps, [e for e in buckets if e.get("tid") == gradients], ranks)


def read_events(file: Path) -> list[dict[str, Any]]:
    """All events of a timeline. Raises TimelineError."""
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise TimelineError(f"{file}: {error.strerror}") from None
    except (ValueError, UnicodeDecodeError):
        raise TimelineError(f"{file}: no timeline: not JSON") from None
    events = found.get("traceEvents") if isinstance(found, dict) else None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise TimelineError(f"{file}: no timeline: it has no list of traceEvents")
    return events


def track_names(events: list[dict[str, Any]]) -> dict[tuple[Any, Any], str]:
    """The names of the tracks by rank and number: "step", "gradients", "metrics"."""
    return {(e.get("pid"), e.get("tid")): e["args"]["name"] for e in events if e.get("name") == "thread_name"}


def _rank_0_track(event: dict[str, Any], tracks: dict[tuple[Any, Any], str]) -> str | None:
    is_span = event.get("pid") == 0 and event.get("ph") == "X"
    return tracks.get((event.get("pid"), event.get("tid"))) if is_span else None


def _median_step(file: Path, steps: list[tuple[float, float]], events: list[dict[str, Any]], ranks: int) -> Step:
    begins = [begin for begin, _ in steps]
    ready: defaultdict[int, dict[int, float]] = defaultdict(dict)  # by bucket: by step
    sizes: dict[int, int] = {}
    arrived: dict[int, float] = {}
    for event in events:
        index = bisect_right(begins, event["ts"]) - 1
        if index < 0 or event["ts"] > steps[index][1]:
            continue
        key = event["args"]["bucket"]
        if "bytes" in event["args"]:
            sizes[key] = event["args"]["bytes"]
            ready[key][index] = (event["ts"] - begins[index]) * 1e-6
        end = event["ts"] + event.get("dur", 0)
        arrived[index] = max(arrived.get(index, 0.0), end)
    used = sorted(index for index in arrived if index >= min(WARM_UP_STEPS, len(steps) - 1))
    counted = {key: [times[i] for i in used if i in times] for key, times in ready.items()}
    whole = [key for key, times in counted.items() if times and len(times) >= len(used) / 2]
    if not whole:
        raise TimelineError(f"{file}: no step has buckets: train for more than {WARM_UP_STEPS} steps")
    buckets = [Bucket(sizes[key], statistics.median(counted[key])) for key in sorted(whole)]
    return Step(
        buckets=tuple(buckets),
        rest=statistics.median((steps[i][1] - arrived[i]) * 1e-6 for i in used),
        ranks=max(ranks, 1),
        measured=statistics.median((steps[i][1] - steps[i][0]) * 1e-6 for i in used),
    )
