"""A pipeline as a table: its stages, and what each of them costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tarantella.keras.pipeline.crossings import Kind
from tarantella.keras.pipeline.cut import Cut
from tarantella.keras.pipeline.replicas import Replicas
from tarantella.pipeline_schedule import Schedule


def table(cut: Cut, schedule: Schedule, times: Sequence[float], replicas: Replicas) -> str:
    """The stages, a line for each.

    Args:
        times: the milliseconds of each call's forward pass, in the order of the stages.
    """
    rows: list[tuple[str, ...]] = [("stage", "rank", "layers", "parameters", "forward ms", "bytes sent")]
    remaining = iter(times)
    for stage, calls in enumerate(cut.calls):
        names = [call.operation.name for call in calls]
        layers = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]} ({len(names)})"
        parameters = sum(int(np.prod(v.shape)) for v in cut.variables(stage) if v.trainable)
        milliseconds = sum(next(remaining) for _ in calls)
        sent = sum(len(c.consumers) * sum(part.bytes for part in c.parts) for c in cut.sent_by(stage))
        ranks = ", ".join(map(str, replicas.with_position(schedule.rank_of(stage))))
        row: tuple[Any, ...] = stage, ranks, layers, parameters, f"{milliseconds:.2f}", sent
        rows.append(tuple(map(str, row)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = {2}
    lines = [
        "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]
    note = (
        f"{schedule.name}, {schedule.micro_batches} micro-batches: bubble {100 * schedule.bubble:.1f} %. "
        "Times are of 8 samples, bytes of one"
    )
    shared = [
        f"stages {', '.join(map(str, c.stages))} share {c.name}: {c.parts[0].bytes} bytes back in each micro-batch"
        for c in cut.crossings_of_kind(Kind.VARIABLE)
    ]
    return "\n".join([*lines, note, *shared])
