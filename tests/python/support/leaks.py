"""Whether a process holds more, the longer an elastic job runs (`ranks/keras/elastic_leaks.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EACH = {"descriptors": 0, "threads": 0, "maps": 1, "shared": 0, "resident": 12}
"""For each loss and join: a step is traced again, for which TensorFlow's allocator takes some memory anew."""
SLACK = {"descriptors": 0, "threads": 1, "maps": 10, "shared": 0, "resident": 0}
"""In all: threads of a pool start when they are needed first, and the allocator divides its mappings."""
LAST = 3
"""Joins, of the last ones. The least counts: one may come while the threads of an epoch's dataset still end."""

Held = Mapping[str, int]


def grown(found: Sequence[Mapping[str, Held]]) -> list[str]:
    """What has grown.

    found: after each join, what rank 0 and the launcher hold; until the third the launcher keeps the records of lost ranks.
    """
    first, times = found[2], len(found) - 3
    faults = []
    for process, held in first.items():
        for name, number in held.items():
            last = min(later[process][name] for later in found[3:][-LAST:])
            if last > number + SLACK[name] + EACH[name] * times:
                faults.append(f"{process}: {name} {number} after two losses, {last} after {times} more")
    return faults
