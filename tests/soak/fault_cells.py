"""The cells of the fault matrix: what happens to whom, when and over which transport; and which of them are senseless."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

FAULTS = ("kill", "stop", "stop-continue", "term", "leave", "raise", "fork")
PHASES = ("starting", "joining", "first", "bucket", "between", "evaluating", "saving", "finalizing")
TRANSPORTS = ("shm", "mpi", "hierarchical", "tcp", "nccl")
VICTIMS = ("0", "1", "all", "launcher")

SIGNALS = ("kill", "stop", "stop-continue", "term")
KERAS = ("evaluating", "saving")
"""Phases of a training by Keras; in the others a program in C is enough."""
UNDER_MPIRUN = ("mpi", "hierarchical")
SIZE = 3
STOP_TIMEOUT, OTHER_TIMEOUT = 2, 60
"""TNT_TIMEOUT in seconds: of cells in which a deadline is to pass, and of all others."""
JOIN_TIMEOUT = 10
"""The deadline of MPI_Init is never shorter."""
LEADER_GRACE = 5
"""After the deadline, for rank 0 to say which rank has not joined."""
PROMPT, MPIRUN_MORE = 2.0, 1.0
"""Seconds within which all that needs no deadline is noticed, and how many more mpirun takes (docs/reliability.md)."""


@dataclass(frozen=True, order=True)
class Cell:
    """One fault of a job."""

    transport: str
    phase: str
    fault: str
    victim: str

    def __str__(self) -> str:
        return f"{self.transport} {self.phase} {self.fault} {self.victim}"

    @property
    def victims(self) -> set[int]:
        """The ranks that are faulty."""
        return set(range(SIZE)) if self.victim == "all" else set() if self.victim == "launcher" else {int(self.victim)}

    @property
    def ends_well(self) -> bool:
        """Whether the job goes on as if nothing had happened."""
        return self.fault in ("fork", "stop-continue")

    @property
    def has_deadline(self) -> bool:
        """Whether only a deadline ends it."""
        return self.fault == "stop" or self._leaves_unseen

    @property
    def timeout(self) -> int:
        """TNT_TIMEOUT."""
        return STOP_TIMEOUT if self.has_deadline else OTHER_TIMEOUT

    @property
    def _leaves_unseen(self) -> bool:
        """Whether the rank ends well before the others know it, which whatever started it takes for its right."""
        return self.transport != "shm" and self.phase == "starting" and self.fault == "leave"

    @property
    def seconds(self) -> float:
        """Within which the others know."""
        prompt = PROMPT + MPIRUN_MORE * (self.transport in UNDER_MPIRUN)
        if not self.has_deadline:
            return prompt
        if self.transport in ("shm", "tcp") and self.phase in ("starting", "joining") and self.victim == "0":
            return STOP_TIMEOUT + LEADER_GRACE + prompt
        in_mpi = self.transport in UNDER_MPIRUN and self.phase in ("starting", "joining")
        return (JOIN_TIMEOUT if in_mpi else STOP_TIMEOUT) + prompt


CHECKS = {
    "seconds": "in time",
    "names": "named",
    "left": "none left",
    "bits": "end, bits",
}
"""What is checked of a cell, and how the table calls it."""


@dataclass
class Found:
    """What came of a cell in one run."""

    wrong: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    """The `CHECKS` that did not hold."""
    seconds: float | None = None
    """After which the last of the other ranks knew; None if none had to."""
    said: str = ""
    mpirun_hung: bool = False

    def add(self, check: str, text: str) -> None:
        """Something is wrong. check: one of `CHECKS`."""
        assert check in CHECKS
        self.failed.add(check)
        self.wrong.append(text)


def why_not(cell: Cell) -> str:
    """Why the cell makes no sense; empty if it does."""
    if cell.transport == "nccl":
        return "the ranks of the fake NCCL are threads of one process: `tests/nccl/failure_test.cpp`"
    if cell.phase in KERAS and cell.transport != "shm":
        return "only Keras has this phase; its ranks wait in the same call as in the other phases"
    if cell.victim == "launcher" and cell.fault == "stop":
        return "a launcher that is stopped (Ctrl-Z) ends nothing: the ranks go on"
    if cell.victim == "launcher" and cell.fault not in SIGNALS:
        return "only a rank does this"
    if cell.phase == "joining" and cell.fault not in SIGNALS:
        return "the rank is inside the call, and can do nothing else: it is `starting` before"
    if cell.victim == "all" and cell.fault == "stop":
        return "no rank is left to notice"
    if cell.victim == "all" and cell.fault == "leave":
        return "a job of which all ranks have ended has ended well"
    if cell.phase == "finalizing" and cell.fault == "stop":
        return "no rank waits for this one any more. The launcher does, as for one that still works"
    if cell.phase == "finalizing" and cell.fault == "leave":
        return "this is how a job ends"
    return ""


def all_cells() -> Iterator[Cell]:
    """Also the senseless ones."""
    for transport, phase, fault, victim in product(TRANSPORTS, PHASES, FAULTS, VICTIMS):
        yield Cell(transport, phase, fault, victim)


def sensible_cells(transports: tuple[str, ...] = TRANSPORTS) -> list[Cell]:
    """Those that are run, without those of Keras."""
    return [cell for cell in all_cells() if cell.transport in transports and cell.phase not in KERAS and not why_not(cell)]


def keras_cells() -> list[Cell]:
    """Those whose phase is Keras'."""
    return [cell for cell in all_cells() if cell.phase in KERAS and not why_not(cell)]


def spread(cells: list[Cell]) -> list[Cell]:
    """Each fault in each phase once, with victims and transports in turn: where all cells would take too long."""
    chosen = []
    for number, (phase, fault) in enumerate(sorted({(cell.phase, cell.fault) for cell in cells})):
        here = [cell for cell in cells if (cell.phase, cell.fault) == (phase, fault)]
        chosen.append(here[(5 * number) % len(here)])
    return chosen


def named(text: str) -> set[int]:
    """The ranks that an error blames: those that it begins with."""
    match = re.match(r"rank \d+(, rank \d+)*", text)
    return set(map(int, re.findall(r"\d+", match[0]))) if match else set()
