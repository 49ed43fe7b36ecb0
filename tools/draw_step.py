"""Draws one step of a timeline: `python tools/draw_step.py trace.json step.png`. `tarantella --timeline` writes traces.

The picture shows the step of the median duration on rank 0, and two of its buckets of gradients from close up: one that was
reduced beside backward, and the last one. Each has a row for packing, reducing, waiting for other ranks, and unpacking.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tarantella.scaling.timeline import WARM_UP_STEPS, TimelineError, read_events, track_names

COLOURS = {
    "backward": "#9aa5b1",
    "optimizer": "#d5dae0",
    "pack": "#f2b134",
    "reduce": "#0b7a75",
    "wait": "#a9cfcb",
    "unpack": "#c8553d",
}
KINDS = ("pack", "reduce", "wait", "unpack")
MICROSECONDS_PER_MS = 1000


def read(file: Path) -> tuple[tuple[float, float], list[dict[str, Any]]]:
    """Begin and end of the median step of rank 0, and the events of its buckets. Exits where the file has none."""
    try:
        events = read_events(file)
    except TimelineError as error:
        sys.exit(str(error))
    tracks = track_names(events)
    mine = [e for e in events if e.get("ph") == "X" and e["pid"] == 0]
    steps = sorted((e["ts"], e["ts"] + e["dur"]) for e in mine if tracks[0, e["tid"]] == "step")[WARM_UP_STEPS:]
    if not steps:
        sys.exit(f"{file}: no steps: write it with `tarantella -n 2 --timeline {file} -- train.py`, of more than two steps")
    begin, end = sorted(steps, key=lambda step: step[1] - step[0])[len(steps) // 2]
    buckets = [e for e in mine if tracks[0, e["tid"]] == "gradients" and begin <= e["ts"] <= end]
    return (begin, end), buckets


def draw(step: tuple[float, float], events: Sequence[dict[str, Any]], picture: Path) -> str:
    """Returns the sentence under the picture."""
    begin, end = step
    buckets = {number: [e for e in events if e["args"]["bucket"] == number] for number in {e["args"]["bucket"] for e in events}}
    ready = max(_span(bucket)[0] for bucket in buckets.values())
    busy = sum(e["dur"] for e in events if not e["name"].startswith("wait"))
    exposed = max(0.0, max(e["ts"] + e["dur"] for e in events) - ready)

    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.subplot_mosaic([["step", "step"], ["hidden", "last"]], height_ratios=[1, 1.5])
    _draw_step(axes["step"], step, list(buckets.values()), ready)
    for name, number in _zoomed(buckets).items():
        _draw_bucket(axes[name], buckets[number], begin, ready)
        place = "beside backward" if name == "hidden" else "after backward"
        axes[name].set_title(f"bucket {number}, {place}", fontsize=10, loc="left")
    if "hidden" not in _zoomed(buckets):
        axes["hidden"].remove()
    figure.savefig(picture, dpi=200)
    return (
        f"a step of {_ms(end - begin):.0f} ms: {_ms(busy):.2f} ms of communication, and {_ms(exposed):.2f} ms from the last "
        "gradient's arrival to the end of its reduction"
    )


def _zoomed(buckets: dict[int, list[dict[str, Any]]]) -> dict[str, int]:
    """The last bucket, and of the others the one that waited the smallest part of its time."""

    def waited(number: int) -> float:
        first, last = _span(buckets[number])
        return sum(e["dur"] for e in buckets[number] if e["name"].startswith("wait")) / max(last - first, 1e-9)

    last = max(buckets, key=lambda number: _span(buckets[number])[0])
    others = sorted(number for number in buckets if number != last)
    return {**({"hidden": min(others, key=waited)} if others else {}), "last": last}


def _draw_step(axes: Axes, step: tuple[float, float], buckets: Sequence[Sequence[dict[str, Any]]], ready: float) -> None:
    """The whole step: what computes, and below it one block for each bucket."""
    begin, end = step
    least = _ms(end - begin) / 200  # so that the eye finds it
    axes.broken_barh([(0, _ms(ready - begin))], (-0.4, 0.8), color=COLOURS["backward"])
    axes.broken_barh([(_ms(ready - begin), _ms(end - ready))], (-0.4, 0.8), color=COLOURS["optimizer"])
    axes.text(_ms(ready - begin) / 2, 0, "forward and backward", ha="center", va="center", fontsize=9)
    for bucket in buckets:
        first, last = _span(bucket)
        axes.broken_barh([(_ms(first - begin), max(_ms(last - first), least))], (0.6, 0.8), color=COLOURS["reduce"])
        number = str(bucket[0]["args"]["bucket"])
        axes.annotate(number, (_ms(first - begin), 1.5), ha="center", va="top", fontsize=9, annotation_clip=False)
    _style(axes, ["computing", "buckets"])
    axes.set_ylim(2.0, -0.6)
    axes.set_xlim(0, _ms(end - begin))
    axes.set_xlabel("ms since the step began, on rank 0", fontsize=9)


def _draw_bucket(axes: Axes, bucket: Sequence[dict[str, Any]], begin: float, ready: float) -> None:
    """One bucket from close up: a row for backward and one for each kind of work on the bucket."""
    first, last = _span(bucket)
    margin = 0.15 * (last - first)
    left, right = first - margin, last + margin
    parts = [(left, min(right, ready), "backward"), (max(left, ready), right, "optimizer")]
    for start, stop, colour in parts:
        axes.broken_barh([(_ms(start - first), _ms(max(0.0, stop - start)))], (-0.4, 0.8), color=COLOURS[colour])
    for row, kind in enumerate(KINDS, 1):
        spans = [(_ms(e["ts"] - first), _ms(e["dur"])) for e in bucket if e["name"].split()[0] == kind]
        axes.broken_barh(spans, (row - 0.4, 0.8), color=COLOURS[kind], edgecolor=COLOURS[kind], linewidth=0.6)
    _style(axes, ["backward" if ready > first else "optimizer", *KINDS])
    axes.invert_yaxis()
    axes.set_xlim(_ms(left - first), _ms(right - first))
    axes.set_xlabel(f"ms, from {_ms(first - begin):.0f} ms on", fontsize=9)


def _style(axes: Axes, rows: Sequence[str]) -> None:
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _span(bucket: Sequence[dict[str, Any]]) -> tuple[float, float]:
    return min(e["ts"] for e in bucket), max(e["ts"] + e["dur"] for e in bucket)


def _ms(microseconds: float) -> float:
    return microseconds / MICROSECONDS_PER_MS


def main(words: Sequence[str]) -> None:
    if len(words) != 2:
        sys.exit(__doc__)
    step, events = read(Path(words[0]))
    print(draw(step, events, Path(words[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
