"""Notices of the processes beside the ranks (mpi_rank.py) to the launcher, by mpirun: a rank was started, or has ended well.

These are lines on standard error with a control character, which the launcher takes out. So it knows of an mpirun that hangs.
"""

import os
import re
import time
from collections.abc import Iterable

from tarantella.launcher.base.words import counted
from tarantella.launcher.show.output import STDERR

_MARK = b"\x1e"
_LINE = re.compile(_MARK + rb"tarantella rank (\d+) (started|ended)\n")
_LONGEST = 64


def tell(rank: int, what: str) -> None:
    """what: "started" or "ended"."""
    os.write(STDERR, _MARK + f"tarantella rank {rank} {what}\n".encode())


class RankNotices:
    """The notices of one mpirun's ranks."""

    def __init__(self, ranks: Iterable[int], seconds: float) -> None:
        """seconds: within which all ranks are to be started."""
        self._expected = frozenset(ranks)
        self._ranks_by_notice: dict[bytes, set[int]] = {b"started": set(), b"ended": set()}
        self._held_bytes = b""
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds

    def taken_out(self, data: bytes) -> bytes:
        """The output without the notices. The beginning of one is held back."""
        data = self._held_bytes + data
        for rank, what in _LINE.findall(data):
            self._ranks_by_notice[what].add(int(rank))
        data = _LINE.sub(b"", data)
        begin = data.rfind(_MARK)
        is_part = begin >= 0 and b"\n" not in data[begin:] and len(data) - begin < _LONGEST
        self._held_bytes = data[begin:] if is_part else b""
        return data[:begin] if is_part else data

    def rest(self) -> bytes:
        """At the end of the output: what was held back and is no notice."""
        held, self._held_bytes = self._held_bytes, b""
        return held

    @property
    def all_started(self) -> bool:
        return self._ranks_by_notice[b"started"] >= self._expected

    @property
    def none_started(self) -> bool:
        return not self._ranks_by_notice[b"started"]

    @property
    def all_ended(self) -> bool:
        """Whether all ranks have ended well."""
        return self._ranks_by_notice[b"ended"] >= self._expected

    def late(self) -> str:
        """Which ranks were not started in time, in a sentence; empty if there are none."""
        missing = sorted(self._expected - self._ranks_by_notice[b"started"])
        if not missing or time.monotonic() < self._deadline:
            return ""
        several = f"{counted(len(missing), 'rank')}, the first is {missing[0]}, were"
        subject = several if len(missing) > 1 else f"rank {missing[0]} was"
        return f"{subject} not started by mpirun within {self._seconds:g} s (TNT_TIMEOUT)"
