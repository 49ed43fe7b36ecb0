"""Whether a process holds more, the longer an elastic job runs (`ranks/keras/elastic_leaks.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MEGABYTES = 12
"""For each loss and join: a step is traced again, for which TensorFlow's allocator takes some memory anew."""
SLACK = {"descriptors": 0, "threads": 1, "maps": 10, "shared": 0}
"""In all: threads of a pool start when they are needed first, and the allocator divides its mappings."""

Held = Mapping[str, int]


def grown(found: Sequence[Mapping[str, Held]]) -> list[str]:
    """What has grown.

    found: after each join, what rank 0 and the launcher hold; until the third the launcher keeps the records of lost ranks.
    """
    first, last, times = found[2], found[-1], len(found) - 3
    faults = []
    for process, held in last.items():
        for name, number in held.items():
            most = first[process][name] + (MEGABYTES * times if name == "resident" else SLACK[name])
            if number > most:
                faults.append(f"{process}: {name} {first[process][name]} after two losses, {number} after {times} more")
    return faults
