"""The tables of the fault matrix in docs/reliability.md, between two comments; the rest of the page is written by hand."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from fault_cells import CHECKS, FAULTS, KERAS, PHASES, TRANSPORTS, Cell, Found, all_cells, why_not

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


def figures_table(found: Mapping[Cell, Sequence[Found]]) -> str:
    """Of each transport: its jobs, in how many of them each check held, and after how many seconds the others knew."""
    heads = ["transport", "of", "runs", "jobs", *CHECKS.values(), "median, most", "at a deadline"]
    rows = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for transport in TRANSPORTS:
        for keras in (False, True):
            cells = [cell for cell in found if cell.transport == transport and (cell.phase in KERAS) == keras]
            if not cells:
                continue
            jobs = [one for cell in cells for one in found[cell]]
            held = [sum(check not in one.failed for one in jobs) for check in CHECKS]
            prompt = [one.seconds for cell in cells if not cell.has_deadline for one in found[cell] if one.seconds is not None]
            late = [one.seconds for cell in cells if cell.has_deadline for one in found[cell] if one.seconds is not None]
            counts = sorted({len(found[cell]) for cell in cells})
            runs = str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
            words = [transport, "Keras" if keras else "C", runs, len(jobs), *held, _shown(prompt), _shown(late)]
            rows.append(f"| {' | '.join(map(str, words))} |")
    return "\n".join(["So many jobs held:", "", *rows])


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} s, {max(values):.2f} s" if values else "-"


def failures(found: Mapping[Cell, Sequence[Found]]) -> str:
    """What did not hold: by how much jobs were late, and each cell in which something else was wrong."""
    late = [
        (one.seconds - cell.seconds, cell)
        for cell, of_cell in found.items()
        for one in of_cell
        if one.seconds is not None and "seconds" in one.failed
    ]
    text = f"{len(late)} jobs were late"
    if late:
        median = statistics.median(seconds for seconds, _ in late)
        text += f", by {median:.1f} s (median) and {max(late)[0]:.1f} s (most: `{max(late)[1]}`)"
    text += "."
    wrong = {cell: sum(bool(one.failed - {"seconds"}) for one in of_cell) for cell, of_cell in found.items()}
    lines = [f"* `{cell}`: {count} of {len(found[cell])} runs." for cell, count in sorted(wrong.items()) if count]
    return "\n".join([text, "", "Something else was wrong in these cells:", "", *lines] if lines else [text])


def write(page: Path, found: Mapping[Cell, Sequence[Found]]) -> None:
    """Replaces the tables of the page."""
    hung = sum(one.mpirun_hung for of_cell in found.values() for one in of_cell)
    mpirun = f"mpirun itself did not end in {hung} of these jobs, though all ranks had ended."
    text = "\n\n".join([BEGIN, victims_table(), reasons(), figures_table(found), failures(found), mpirun, END])
    before = page.read_text()
    page.write_text(re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: text, before, flags=re.DOTALL))
