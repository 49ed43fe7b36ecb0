"""The tables of the fault matrix in docs/reliability.md, between two comments; the rest of the page is written by hand."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fault_cells import FAULTS, KERAS, PHASES, TRANSPORTS, Cell, all_cells, why_not

BEGIN, END = "<!-- the fault matrix: tests/soak/matrix.py --write -->", "<!-- end of the fault matrix -->"
MARKS = {"0": "0", "1": "1", "all": "a", "launcher": "L"}


def victims_table() -> str:
    """Which cells there are: it follows from `why_not` alone."""
    rows = [f"| fault | {' | '.join(PHASES)} |", f"| --- |{' --- |' * len(PHASES)}"]
    for fault in FAULTS:
        rows.append(f"| {fault} | {' | '.join(_victims(fault, phase) for phase in PHASES)} |")
    return "\n".join(rows)


def _victims(fault: str, phase: str) -> str:
    return "".join(mark for victim, mark in MARKS.items() if not why_not(Cell("shm", phase, fault, victim))) or "-"


def reasons() -> str:
    """Why some are none, each reason once."""
    found: dict[str, int] = {}
    for cell in all_cells():
        if why_not(cell):
            found[why_not(cell)] = found.get(why_not(cell), 0) + 1
    return "\n".join(f"* {count} cells: {reason}." for reason, count in found.items())


def figures_table(seconds: Mapping[Cell, Sequence[float]], runs: int, wrong: Mapping[Cell, Sequence[str]]) -> str:
    """Of each transport: cells, those that held, and after how many seconds the others knew."""
    rows = ["| transport | phases of | cells | held in all runs | others know after (median, most) | at a deadline |"]
    rows.append("| --- | --- | --- | --- | --- | --- |")
    for transport in TRANSPORTS:
        for keras in (False, True):
            cells = [cell for cell in seconds if cell.transport == transport and (cell.phase in KERAS) == keras]
            if not cells:
                continue
            prompt = [value for cell in cells if not cell.has_deadline for value in seconds[cell]]
            late = [value for cell in cells if cell.has_deadline for value in seconds[cell]]
            held = sum(cell not in wrong for cell in cells)
            rows.append(
                f"| {transport} | {'Keras' if keras else 'C'} | {len(cells)} | {held} | {_shown(prompt)} | {_shown(late)} |"
            )
    return "\n".join([f"In {runs} run{'s' * (runs != 1)} of each cell:", "", *rows])


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s, {max(values):.2f} s" if values else "-"


def write(
    page: Path, seconds: Mapping[Cell, Sequence[float]], runs: int, wrong: Mapping[Cell, Sequence[str]], hung: int
) -> None:
    """Replaces the tables of the page. hung: how often mpirun did not end though all ranks had."""
    mpirun = f"mpirun itself did not end in {hung} of these jobs, though all ranks had ended."
    text = "\n\n".join([BEGIN, victims_table(), reasons(), figures_table(seconds, runs, wrong), mpirun, END])
    before = page.read_text()
    page.write_text(re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: text, before, flags=re.DOTALL))
