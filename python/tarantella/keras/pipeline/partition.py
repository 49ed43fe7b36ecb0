"""Block partition: a sequence of layers is cut into stages so that the slowest stage is as fast as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BACKWARD = 2.0
"""The time of a backward pass, in forward passes."""
BYTES_PER_MS = 2e6
"""The speed at which a cut is taken to send: slower than shared memory, faster than most networks."""


@dataclass(frozen=True)
class Layers:
    """The facts about a sequence of n layers that a partition depends on.

    Attributes:
        times: the milliseconds of each layer's forward pass.
        is_trained: whether each layer has variables that are trained.
        sent: for each place 0 ... n, the bytes that cross a cut just before this layer, forward.
        is_allowed: for each place, whether a cut may be made there.
        is_whole: for each place, whether a cut there leaves each trained variable to one stage; empty if all do.
    """

    times: Sequence[float]
    is_trained: Sequence[bool]
    sent: Sequence[float]
    is_allowed: Sequence[bool]
    is_whole: Sequence[bool] = ()

    def cost(self, begin: int, end: int) -> float:
        """The milliseconds of a stage with these layers: forward, backward, and the messages at its begin."""
        return (1 + BACKWARD) * sum(self.times[begin:end]) + 2 * self.sent[begin] / BYTES_PER_MS


def best_partition(layers: Layers, stages: int) -> list[int] | None:
    """The begins of all stages but the first, such that the most expensive stage costs least. None if there is no partition.

    Each stage has a layer with trained variables. Of several partitions the one that sends the fewest bytes is taken.
    """
    n = len(layers.times)
    places = [i for i in range(1, n) if layers.is_allowed[i]]
    found: dict[int, tuple[float, float, list[int]]] = {0: (0.0, 0.0, [])}  # by a stage's begin: the stages before it
    for _ in range(stages - 1):
        following: dict[int, tuple[float, float, list[int]]] = {}
        for begin, (worst, sent, begins) in found.items():
            for place in places:
                if place > begin and any(layers.is_trained[begin:place]):
                    cost = max(worst, layers.cost(begin, place))
                    candidate = (cost, sent + layers.sent[place], [*begins, place])
                    following[place] = min(following.get(place, candidate), candidate)
        found = following
    complete = [
        (max(worst, layers.cost(begin, n)), sent, begins)
        for begin, (worst, sent, begins) in found.items()
        if any(layers.is_trained[begin:])
    ]
    return min(complete)[2] if complete else None


def max_stages(layers: Layers) -> int:
    """The largest number of stages for which there is a partition."""
    stages = 0
    while best_partition(layers, stages + 1) is not None:
        stages += 1
    return stages
