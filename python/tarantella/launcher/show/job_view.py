"""A look into a running job, and into one that has failed: what each of its ranks does, from their flight records."""

import json
import os
import selectors
import shlex
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tarantella import variables
from tarantella.flight import folder, lines, record
from tarantella.flight.record import Record, UnreadableRecordError
from tarantella.flight.waits import Waits
from tarantella.launcher.base import mark
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.show.flight_memory import FlightMemory
from tarantella.launcher.show.output import Console
from tarantella.launcher.show.status_socket import StatusSocket

NO_MEMORY = "the system refused the memory for it, as under a limit on file sizes (ulimit -f)"


@dataclass(frozen=True)
class _Rank:
    pid: int
    memory: FlightMemory | None
    host: str = ""
    """Where it runs, if that is not here."""
    ended: str = ""
    """How, once it has."""


class JobView:
    """The ranks that one launcher, or one process of ours beside a rank of mpirun, has started."""

    def __init__(self, options: Options, job: str, only: int | None, selector: selectors.BaseSelector) -> None:
        """job: a name that all parts of the job share. only: as for `Job`."""
        self._options = options
        self._job = job
        self._only = only
        self._begin = time.time()
        self._ranks: dict[int, _Rank] = {}
        self._stopped: frozenset[int] = frozenset()
        # the user knows the pid of the process that he started, the parent of the one that starts the ranks
        self._pid = os.getppid() if only is None else os.getpid()
        self._socket = StatusSocket(self._pid, self.describe, selector)

    def started(self, rank: int, pid: int, memory: FlightMemory | None, host: str = "") -> None:
        self._ranks[rank] = _Rank(pid, memory, host)
        ended = [number for number, one in self._ranks.items() if one.ended]
        for number in ended[: -self._options.ranks]:  # newcomers have taken their places long ago
            forgotten = self._ranks.pop(number)
            if forgotten.memory is not None:
                forgotten.memory.close()

    def ended(self, rank: int, how: str) -> None:
        self._ranks[rank] = replace(self._ranks[rank], ended=how)

    def has_joined(self) -> bool:
        """Whether a rank has joined, as its record tells, by whatever language."""
        for one in self._ranks.values():
            try:
                if one.memory is not None and one.memory.read() is not None:
                    return True
            except UnreadableRecordError:
                return True  # nothing can be said against it
        return False

    def failed(self) -> None:
        """To be called when the first rank has failed: notes which of the others are stopped, before they are killed."""
        self._stopped = frozenset(
            rank for rank, one in self._ranks.items() if not (one.ended or one.host) and mark.is_stopped(one.pid, traced=True)
        )

    def describe(self) -> dict[str, Any]:
        """The answer to `tarantella status`."""
        known = describe_launch(self._options, self._job, self._begin)
        if self._options.elastic:  # ranks come and go
            known["ranks"] = sum(not one.ended for one in self._ranks.values())
        return {**known, "pid": self._pid, "only": self._only, "members": self._describe_ranks()}

    def print_on(self, console: Console) -> None:
        for line in lines.job_lines(self.describe()):
            console.message(line)

    def write(self, path: Path, reason: str, console: Console) -> None:
        """Writes the records of the ranks into a folder, with how they ended."""
        written = 0
        try:
            path.mkdir(parents=True, exist_ok=True)
            for rank, one in self._ranks.items():
                if one.memory is None:
                    console.message(f"rank {rank} has no flight record: {NO_MEMORY}")
                written += self._write_rank(path, rank, one, reason)
        except OSError as error:
            console.message(f"--flight-recorder: cannot write to {str(path)!r}: {error.strerror}")
            return
        if written and self._only is None:
            console.message(f"flight records are in {path}: `tarantella explain {shlex.quote(str(path))}` tells what they say")

    def close(self) -> None:
        """To be called while the selector is open."""
        self._socket.close()
        for one in self._ranks.values():
            if one.memory is not None:
                one.memory.close()
        self._ranks.clear()

    def _write_rank(self, path: Path, rank: int, one: _Rank, reason: str) -> bool:
        if one.memory is None:
            return False
        ended = one.ended or "was still running"
        told = {
            "job": self._job, "rank": rank, "ranks": self._options.ranks, "pid": one.pid, "host": socket.gethostname(),
            "ended": ended, "stopped": rank in self._stopped, "reason": reason, "written": time.time(),
        }  # fmt: skip
        record.copy(one.memory.descriptor, path / folder.record_name(rank))
        (path / folder.told_name(rank)).write_text(json.dumps(told, indent=1) + "\n")
        return True

    def _describe_ranks(self) -> list[dict[str, Any]]:
        records, unreadable = self._read()
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        waits = Waits(records, now)
        return [self._describe_rank(rank, records, waits, unreadable.get(rank, "")) for rank in sorted(self._ranks)]

    def records(self) -> Mapping[int, Record]:
        """The records of the ranks that can be read now."""
        return self._read()[0]

    def _read(self) -> tuple[dict[int, Record], dict[int, str]]:
        records, unreadable = {}, {}
        for rank, one in self._ranks.items():
            try:
                found = None if one.memory is None else one.memory.read()
            except (OSError, UnreadableRecordError) as error:
                unreadable[rank] = str(error)
                continue
            if found is not None:
                records[rank] = found
        return records, unreadable

    def _describe_rank(self, rank: int, records: Mapping[int, Record], waits: Waits, unreadable: str) -> dict[str, Any]:
        one, known = self._ranks[rank], records.get(rank)
        if one.host:
            return {"rank": rank, "pid": one.pid, "state": one.ended or f"runs on {one.host}", "memory": None}
        pid = one.pid if known is None else known.pid
        state = one.ended or (
            "stopped" if mark.is_stopped(pid, traced=True) else "has not joined" if known is None else "running"
        )
        told: dict[str, Any] = {"rank": rank, "pid": pid, "state": state, "memory": None if one.ended else memory_of(pid)}
        if unreadable or one.memory is None:
            told["unreadable"] = unreadable or NO_MEMORY
        if known is None or one.memory is None:
            return told
        told["record"] = one.memory.path()
        if known.progress_ns:
            told |= {"step": known.step, "samples_per_second": known.samples_per_second or None}
            told["step_age"] = waits.age_ns(rank, known.progress_ns) * 1e-9
        wait = waits.main(rank)
        if wait is not None:
            told |= {"call": str(wait.call), "number": wait.call.number, "name": wait.call.name, "waits": wait.waits}
            told["since"] = waits.age_ns(rank, wait.call.begin_ns) * 1e-9 if wait.call.begin_ns else None
            told["waits_for"] = waits.waits_for(rank)
        return told


def describe_launch(options: Options, job: str, began: float = 0.0) -> dict[str, Any]:
    """The description of a job that needs no look at its ranks."""
    return {
        "pid": os.getppid(),
        "job": job,
        "host": socket.gethostname(),
        "hosts": [str(host) for host in options.hosts],
        "command": shlex.join(options.command),
        "ranks": options.ranks,
        "only": None,
        "began": began,
        "restarts": int(options.variables.get(variables.RESTART, os.environ.get(variables.RESTART, "0"))),
        "members": [],
    }


def memory_of(pid: int) -> int | None:
    """The bytes of memory that the process holds; None if there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None
