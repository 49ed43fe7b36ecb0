"""A folder of flight records: for each rank `rank-R.flight`, its record, and `rank-R.json`, how it ended."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tarantella.errors import TarantellaError
from tarantella.flight.record import Record, UnreadableRecordError, read_file
from tarantella.flight.words import named_ranks

_TOLD = re.compile(r"rank-(\d{1,4})\.json")


class NoRecordsError(TarantellaError):
    """The folder has no flight records."""


@dataclass(frozen=True)
class Told:
    """The launcher's knowledge of a rank."""

    job: str
    rank: int
    ranks: int
    pid: int
    host: str
    ended: str
    stopped: bool
    reason: str
    """Why the job ended."""
    written: float


@dataclass(frozen=True)
class Folder:
    """The records of one job."""

    told: dict[int, Told]
    records: dict[int, Record]
    notes: tuple[str, ...]
    """Sentences about missing records, for a reader."""

    @property
    def ranks(self) -> int:
        return next(iter(self.told.values())).ranks


def record_name(rank: int) -> str:
    return f"rank-{rank}.flight"


def told_name(rank: int) -> str:
    return f"rank-{rank}.json"


def read(path: Path) -> Folder:
    """Reads the records of the job that was written last. path: a folder. Raises NoRecordsError."""
    notes: list[str] = []
    everything = [told for file in sorted(path.iterdir()) if _TOLD.fullmatch(file.name) and (told := _read_told(file, notes))]
    if not everything:
        why = f": {notes[0]}" if notes else ". A job writes them when it ends by an error"
        raise NoRecordsError(f"{str(path)!r} has no flight records{why}")
    job = max(everything, key=lambda told: told.written).job
    others = [told.rank for told in everything if told.job != job]
    if others:
        notes.append(f"the records of {named_ranks(others)} are of an earlier job and left out")
    ranks = {one.rank: one for one in everything if one.job == job}
    records = {}
    for rank in ranks:
        try:
            found = read_file(path / record_name(rank))
        except (OSError, UnreadableRecordError) as error:
            notes.append(f"the record of rank {rank} cannot be read: {error}")
            continue
        if found is None:
            notes.append(f"rank {rank} had not joined the job, so it has recorded nothing")
        else:
            records[rank] = found
    missing = [rank for rank in range(next(iter(ranks.values())).ranks) if rank not in ranks]
    if missing:
        notes.append(f"there is no record of {named_ranks(missing)}: look for the folder on the other hosts of the job")
    return Folder(ranks, records, tuple(notes))


def _read_told(file: Path, notes: list[str]) -> Told | None:
    try:
        values: Any = json.loads(file.read_text())
        told = Told(**values)
        if not all(isinstance(value, int) and value >= 0 for value in (told.rank, told.ranks, told.pid)):
            raise ValueError("it has no rank")
        if not told.rank < told.ranks <= 1 << 16 or not isinstance(told.written, float):
            raise ValueError("it has no rank")
        return told
    except (OSError, ValueError, TypeError, RecursionError) as error:
        notes.append(f"{file.name} cannot be read: {error}")
        return None
