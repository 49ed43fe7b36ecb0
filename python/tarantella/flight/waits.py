"""The waits of ranks for one another, from their records.

A rank that waits in a call looks around some fifty times a second and writes the time. A rank that is in the same call and does
not, or has not come to it, is the one that is waited for. A rank that waits for others itself is not to blame.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tarantella.flight.record import Call, Key, Lane, Record
from tarantella.flight.words import named_communicator

STALE_NS = 2_000_000_000
"""A rank that has not looked around for so long does not wait: it is stopped, or dead."""


@dataclass(frozen=True)
class Wait:
    """A call that a rank is in."""

    key: Key
    call: Call
    waits: bool
    """Whether the rank is seen to wait in it for others."""


class Waits:
    """The open calls of the ranks whose records there are."""

    def __init__(self, records: Mapping[int, Record], now_ns: int | None = None) -> None:
        """now_ns: the time, for ranks of this host that are running; None: the last time that the records have."""
        self.records = records
        self._now = {rank: self._newest(record, now_ns) for rank, record in records.items()}
        self._lanes = {rank: {lane.key: lane for lane in record.lanes} for rank, record in records.items()}
        self.by_rank = {rank: tuple(self._waits(rank)) for rank in records}

    def main(self, rank: int) -> Wait | None:
        """The call that says best what the rank does: one in which it waits, else the last one that has begun."""
        return max(self.by_rank.get(rank, ()), key=lambda wait: (wait.waits, wait.call.begin_ns), default=None)

    def waits_for(self, rank: int) -> list[int]:
        """The ranks that keep a rank from going on; none if it does not wait."""
        wait = self.main(rank)
        if wait is None or not wait.waits:
            return []
        late = [member for member in self.others(wait, rank) if self._keeps_waiting(member, wait)]
        return [member for member in late if not self._is_waiting(member)] or late

    def circle(self) -> list[int]:
        """Ranks that wait for one another, in calls that are not the same, each for the next one; empty if there are none."""
        for first in self.by_rank:
            path = [first]
            while late := [rank for rank in self.waits_for(path[-1]) if self._is_waiting(rank)]:
                if late[0] in path:
                    return path[path.index(late[0]) :]
                path.append(late[0])
        return []

    def named(self, key: Key, ranks: int) -> str:
        """Which communicator it is, in words: of all ranks, or of these, with a number where there are several of them."""
        alike = sorted(one.id for one in self.communicators() if (one.members, one.messages) == (key.members, key.messages))
        return named_communicator(key, ranks, alike.index(key.id) + 1 if len(alike) > 1 and not key.messages else 0)

    @staticmethod
    def others(wait: Wait, rank: int) -> list[int]:
        if wait.key.messages:
            return [wait.call.peer]
        return [member for member in wait.key.members if member != rank]

    def last(self, rank: int, key: Key) -> Call | None:
        """The last call of a rank in a communicator."""
        lane = self._lanes.get(rank, {}).get(key)
        return None if lane is None else lane.last

    def communicators(self) -> list[Key]:
        """The communicators of which there is a record, the largest ones first."""
        found = dict.fromkeys(key for lanes in self._lanes.values() for key in lanes)
        return sorted(found, key=lambda key: -len(key.members))

    def lane(self, rank: int, key: Key) -> Lane | None:
        return self._lanes.get(rank, {}).get(key)

    def age_ns(self, rank: int, at_ns: int) -> int:
        """How long ago a time of a rank's record was."""
        return max(0, self._now[rank] - at_ns)

    def _newest(self, record: Record, now_ns: int | None) -> int:
        """On the clock of the record's host."""
        if now_ns is not None:
            return now_ns
        newest = max(other.newest_ns() + other.wall_offset_ns for other in self.records.values())
        return newest - record.wall_offset_ns

    def _waits(self, rank: int) -> Iterator[Wait]:
        for key, lane in self._lanes[rank].items():
            still = [call for call in lane.calls if call.is_open]
            for call in still if key.messages else [call for call in still if call is lane.last]:
                waits = 0 < call.begin_ns <= lane.waiting_ns and self._now[rank] - lane.waiting_ns < STALE_NS
                yield Wait(key, call, waits)

    def _is_waiting(self, rank: int) -> bool:
        return any(wait.waits for wait in self.by_rank.get(rank, ()))

    def _keeps_waiting(self, member: int, wait: Wait) -> bool:
        if member not in self.records:
            return False  # on another host: nothing is known of it
        if wait.key.messages:
            return True
        last = self.last(member, wait.key)
        if last is None or last.number < wait.call.number:
            return True
        own = [other for other in self.by_rank[member] if other.key == wait.key]
        return last.number == wait.call.number and any(not other.waits for other in own)
