"""The step of many ranks, from the step of one and the time of its buckets' all_reduces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tarantella.scaling.timeline import Step

HIDDEN = 0.02
"""Up to this share of a step, exposed communication is no limit."""

Times = Callable[[int, int], tuple[float, str]]
"""Ranks and bytes to the seconds of an all_reduce, and which part of the machine limits it."""


@dataclass(frozen=True)
class Prediction:
    """One number of ranks. Times in seconds."""

    ranks: int
    step: float
    exposed: float
    """Communication that nothing hides: the step would be shorter by this without any."""
    speed_up: float
    efficiency: float
    limit: str
    """"compute", "latency", "link" or "memory"."""


def predict(step: Step, ranks: Sequence[int], times: Times, *, strong: bool) -> list[Prediction]:
    """Weak scaling: each rank has the batch of the timeline. Strong: all ranks together have it."""
    return [_predict(step, n, times, strong) for n in ranks]


def _predict(step: Step, ranks: int, times: Times, strong: bool) -> Prediction:
    serial = step.compute
    part = step.scaled(1 / ranks) if strong else step
    done, slowest = 0.0, (0.0, "compute")
    for bucket in part.buckets:  # one after another, each as soon as it is ready
        seconds, limit = times(ranks, bucket.bytes)
        done = max(done, bucket.ready) + seconds
        slowest = max(slowest, (seconds, limit))
    exposed = max(0.0, done - part.backward)
    whole = part.compute + exposed
    speed_up = serial / whole if strong else ranks * serial / whole
    return Prediction(
        ranks=ranks,
        step=whole,
        exposed=exposed,
        speed_up=speed_up,
        efficiency=speed_up / ranks,
        limit="compute" if exposed <= HIDDEN * whole else slowest[1],
    )
