"""Draws one step of a timeline: `python tools/draw_step.py trace.json step.png`. `tarantella --timeline` writes traces.

The picture has a row for the computation of rank 0 and one for each bucket of gradients: when it was packed, reduced, waited
for and unpacked. The step is the one of the median duration.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tarantella.scaling.timeline import WARM_UP_STEPS, TimelineError, read_events, track_names

COLOURS = {"computing": "#9aa5b1", "pack": "#f2b134", "reduce": "#0b7a75", "wait": "#d7e8e6", "unpack": "#c8553d"}
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
    numbers = sorted({e["args"]["bucket"] for e in events})
    ready = max(min(e["ts"] for e in events if e["args"]["bucket"] == number) for number in numbers)
    busy = sum(e["dur"] for e in events if not e["name"].startswith("wait"))
    exposed = max(0.0, max(e["ts"] + e["dur"] for e in events) - ready)

    figure = Figure(figsize=(9, 1.4 + 0.28 * len(numbers)), layout="constrained")
    axes = figure.subplots()
    parts = [(begin, ready), (ready + exposed, end)]
    axes.broken_barh([(_ms(a - begin), _ms(b - a)) for a, b in parts], (-0.4, 0.8), color=COLOURS["computing"])
    for row, number in enumerate(numbers, 1):
        for event in events:
            if event["args"]["bucket"] == number:
                colour = COLOURS[event["name"].split()[0]]
                width = max(_ms(event["dur"]), _ms(end - begin) / 1000)
                axes.broken_barh([(_ms(event["ts"] - begin), width)], (row - 0.4, 0.8), color=colour)
    axes.set_yticks(range(len(numbers) + 1), ["forward, backward,\noptimizer", *(f"bucket {number}" for number in numbers)])
    axes.invert_yaxis()
    axes.set_xlim(0, _ms(end - begin))
    axes.set_xlabel("ms since the step's begin, on rank 0")
    axes.axvline(_ms(ready - begin), color="#111827", linewidth=0.8, linestyle=":")
    axes.spines[["top", "right"]].set_visible(False)
    patches = [Patch(color=colour, label=name) for name, colour in COLOURS.items()]
    figure.legend(handles=patches, ncols=len(patches), loc="outside upper center")
    figure.savefig(picture, dpi=110)
    return (
        f"a step of {_ms(end - begin):.0f} ms: {_ms(busy):.2f} ms of communication, and {_ms(exposed):.2f} ms from the last "
        "gradient's arrival to the end of its reduction"
    )


def _ms(microseconds: float) -> float:
    return microseconds / MICROSECONDS_PER_MS


def main(words: Sequence[str]) -> None:
    if len(words) != 2:
        sys.exit(__doc__)
    step, events = read(Path(words[0]))
    print(draw(step, events, Path(words[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
