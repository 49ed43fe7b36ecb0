"""The warning that ranks wait for one another in a circle, each in a call that the next one has not come to.

No rank is lost then, and none late: each would wait for TNT_TIMEOUT. It is a warning only, as another thread of such a rank may
still make the missing call. So the ranks must be in the same calls at two looks, and compute next to nothing meanwhile.
"""

import time
from collections.abc import Callable, Mapping

from tarantella.flight.record import Record
from tarantella.flight.waits import Waits
from tarantella.flight.words import seconds
from tarantella.launcher.watch.joining import cpu_seconds

INTERVAL = 5.0
"""Seconds between two looks."""
IDLE = 0.1
"""A rank that has used less of a core waits."""

Place = tuple[int, object, int]
"""A rank, a communicator, and the number of the call in it."""


class CircleWatch:
    """Looks at the ranks now and then, and warns once."""

    def __init__(self, read: Callable[[], Mapping[int, Record]]) -> None:
        """read: gives the flight records of the ranks that run here."""
        self._read = read
        self._next_look = time.monotonic() + INTERVAL
        self._cpu: dict[int, float] = {}
        self._last_circle: frozenset[Place] = frozenset()

    def warning(self, pids: Mapping[int, int]) -> str | None:
        """The warning, mostly None. pids: of the ranks that run."""
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + INTERVAL
        before, self._cpu = self._cpu, {rank: cpu_seconds(pid) for rank, pid in pids.items()}
        idle = [rank for rank, used in self._cpu.items() if used - before.get(rank, float("-inf")) < IDLE * INTERVAL]
        if len(idle) < 2:
            return None
        waits = Waits(self._read(), time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        circle = [rank for rank in waits.circle() if rank in idle]
        seen, self._last_circle = self._last_circle, frozenset(_places(waits, circle))
        if not circle or seen != self._last_circle:
            return None
        self._next_look = float("inf")
        return _text(waits, circle, len(pids))


def _places(waits: Waits, circle: list[int]) -> list[Place]:
    mains = [(rank, waits.main(rank)) for rank in circle]
    return [(rank, wait.key, wait.call.number) for rank, wait in mains if wait is not None]


def _text(waits: Waits, circle: list[int], ranks: int) -> str:
    parts = []
    for rank, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        wait, record = waits.main(rank), waits.records[rank]
        if wait is None:
            continue
        steps = f" after {record.step} steps" if record.progress_ns else ""
        name = f" ({wait.call.name})" if wait.call.name else ""
        since = f" since {seconds(waits.age_ns(rank, wait.call.begin_ns))}" if wait.call.begin_ns else ""
        call = f"call {wait.call.number} of {waits.named(wait.key, ranks)}, {wait.call}{name}"
        parts.append(f"rank {rank}{steps} in {call}{since} for rank {following}")
    return (
        f"warning: ranks wait for one another in different calls: {'; '.join(parts)}. They do not make the same calls in the "
        "same order, as when they have different numbers of batches; unless another thread makes a missing call, TNT_TIMEOUT "
        "ends them"
    )
