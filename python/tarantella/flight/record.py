"""Reads the flight record of a rank, from memory or from a file. The layout is that of `FlightRecord` in C++."""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tarantella.errors import TarantellaError

MAGIC = 0x31304C46544E54
_PAGE = 4096
_HEADER = struct.Struct("<QIIiIqqQddqII")
_NAMES, _NAME_BYTES = 1024, 128
_LANES, _ENTRIES, _MEMBERS = 256, 1024, 512
_LANE = struct.Struct("<QqIIQII16s")
_LANE_BYTES = 1088
_ENTRY = struct.Struct("<qQIIIHH")
_FIRST_LANE = _PAGE + _NAMES * _NAME_BYTES
_FIRST_ENTRY = _FIRST_LANE + _LANES * _LANE_BYTES
BYTES = _FIRST_ENTRY + _LANES * _ENTRIES * _ENTRY.size
_OPEN = 0xFFFFFFFF
_CLOSED = 2
KINDS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "all_to_all",
    "barrier",
    "send",
    "recv",
    "reduce",
    "gather",
    "scatter",
    "reduce_scatter_v",
    "all_gather_v",
    "all_to_all_v",
)
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "uint32", "uint64")
OPS = ("sum", "avg", "min", "max", "prod", "land", "lor", "lxor", "band", "bor", "bxor")
_REDUCING = ("all_reduce", "reduce_scatter", "reduce", "reduce_scatter_v")
_PEER = {"broadcast": "from", "scatter": "from", "recv": "from", "send": "to", "reduce": "to", "gather": "to"}
NAME_LOST = "a name that the record had no room for"


class UnreadableRecordError(TarantellaError):
    """The bytes are no flight record."""


@dataclass(frozen=True)
class Call:
    """One call of a rank. Times are those of CLOCK_MONOTONIC on its host, in nanoseconds."""

    number: int
    """The number of the call in its communicator, from 1: the same on all ranks."""
    kind: str
    count: int
    dtype: str
    op: str
    peer: int
    """The root of a broadcast, or the other rank of a message."""
    name: str
    """Such as the bucket; empty if it has none."""
    begin_ns: int
    """0: a small call that found all others there, so that no clock was read."""
    duration_us: int | None
    """None: it has not ended."""

    @property
    def is_open(self) -> bool:
        return self.duration_us is None

    @property
    def what(self) -> tuple[str, int, str, str, int]:
        """The part of a call that must be the same on all ranks."""
        return self.kind, self.count, self.dtype, self.op, self.peer

    def __str__(self) -> str:
        if self.kind == "barrier":
            return self.kind
        if self.kind == "all_to_all_v":  # each rank has other counts
            return f"{self.kind} of {self.dtype}"
        op = f" {self.op}" if self.kind in _REDUCING else ""
        peer = _PEER.get(self.kind)
        return f"{self.kind}{op} of {self.count} {self.dtype}" + (f" {peer} rank {self.peer}" if peer else "")


@dataclass(frozen=True)
class Key:
    """A communicator, as all its ranks know it. Its messages are a lane of their own."""

    transport: str
    id: int
    members: tuple[int, ...]
    messages: bool


@dataclass(frozen=True)
class Lane:
    """The calls of a rank in one communicator."""

    key: Key
    calls: tuple[Call, ...]
    """The last ones, in their order."""
    waiting_ns: int
    """When the rank was last seen to wait in a call, 0 for never."""
    closed: bool
    """Whether the rank has destroyed the communicator."""

    @property
    def last(self) -> Call | None:
        return self.calls[-1] if self.calls else None


@dataclass(frozen=True)
class Record:
    rank: int
    ranks: int
    pid: int
    joined_ns: int
    wall_offset_ns: int
    """Added to a time of the record: the time of day."""
    step: int
    samples: float
    samples_per_second: float
    progress_ns: int
    """When the step was last told, 0 for never."""
    lanes_missed: int
    """How many communicators are not in the record."""
    lanes: tuple[Lane, ...] = field(default=())

    def newest_ns(self) -> int:
        """The last time that the record has."""
        times = [self.joined_ns, self.progress_ns]
        for lane in self.lanes:
            times.append(lane.waiting_ns)
            times += [call.begin_ns + 1000 * (call.duration_us or 0) for call in lane.calls if call.begin_ns]
        return max(times)


def read(descriptor: int) -> Record | None:
    """The record in this memory or file; None if no rank has joined yet. Raises OSError, UnreadableRecordError."""
    if os.fstat(descriptor).st_size != BYTES:
        raise UnreadableRecordError(f"it has {os.fstat(descriptor).st_size} bytes, and a flight record of this version {BYTES}")
    values = _HEADER.unpack(_read(descriptor, 0, _HEADER.size))
    magic, rank, ranks, pid, _, joined, offset, step, samples, rate, changed, names_used, missed = values
    if magic == 0:
        return None
    if magic != MAGIC or names_used > _NAMES:
        raise UnreadableRecordError("it is no flight record of this version of Tarantella")
    table = _read(descriptor, _PAGE, names_used * _NAME_BYTES)
    names = [_text(table[at : at + _NAME_BYTES]) for at in range(0, len(table), _NAME_BYTES)]
    lanes = tuple(_lanes(descriptor, names))
    return Record(
        rank=rank, ranks=ranks, pid=pid, joined_ns=joined, wall_offset_ns=offset, step=step, samples=samples,
        samples_per_second=rate, progress_ns=changed, lanes_missed=missed, lanes=lanes,
    )  # fmt: skip


def read_file(path: Path) -> Record | None:
    """As `read`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read(descriptor)
    finally:
        os.close(descriptor)


def copy(descriptor: int, path: Path) -> None:
    """Writes the record into a file, with holes where nothing was recorded. Raises OSError."""
    with open(path, "wb") as file:
        for at in range(0, BYTES, _PAGE):
            page = _read(descriptor, at, min(_PAGE, BYTES - at))
            if page.strip(b"\0"):
                file.seek(at)
                file.write(page)
        file.truncate(BYTES)


def _lanes(descriptor: int, names: list[str]) -> Iterator[Lane]:
    table = _read(descriptor, _FIRST_LANE, _LANES * _LANE_BYTES)
    for index in range(_LANES):
        at = index * _LANE_BYTES
        recorded, waiting, state, messages, identity, size, _, transport = _LANE.unpack_from(table, at)
        if state == 0 or not 0 < size <= _MEMBERS or recorded == 0:
            continue
        members = struct.unpack_from(f"<{size}H", table, at + _LANE.size)
        calls = _calls(descriptor, index, recorded, names)
        yield Lane(Key(_text(transport), identity, members, bool(messages)), calls, waiting, state == _CLOSED)


def _calls(descriptor: int, lane: int, recorded: int, names: list[str]) -> tuple[Call, ...]:
    """The oldest entry is left out of a full ring: the next call is perhaps just being written there."""
    ring = _read(descriptor, _FIRST_ENTRY + lane * _ENTRIES * _ENTRY.size, _ENTRIES * _ENTRY.size)
    first = max(0, recorded - _ENTRIES + 1)
    return tuple(_call(_ENTRY.unpack_from(ring, i % _ENTRIES * _ENTRY.size), names) for i in range(first, recorded))


def _call(entry: tuple[int, ...], names: list[str]) -> Call:
    begin, count, number, duration, call, peer, name = entry
    named = "" if name == 0 else names[name - 1] if name <= len(names) else NAME_LOST
    kind, dtype, op = (_one_of(*pair) for pair in zip((KINDS, DTYPES, OPS), struct.pack("<I", call), strict=False))
    ended = None if duration == _OPEN else duration
    return Call(number, kind, count, dtype, op, peer=peer, name=named, begin_ns=begin, duration_us=ended)


def _one_of(names: tuple[str, ...], index: int) -> str:
    return names[index] if index < len(names) else f"unknown ({index})"


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace")


def _read(descriptor: int, at: int, size: int) -> bytes:
    data = os.pread(descriptor, size, at)
    if len(data) != size:
        raise UnreadableRecordError("it ends too early")
    return data
