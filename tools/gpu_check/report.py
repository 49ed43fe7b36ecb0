"""The last words of a command: at most 60 lines, because of a machine that is given back little else may be seen."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_check.cores import core_rows
from gpu_check.run import Line
from gpu_check.targets import bucket_rows, other_rows, table, target_rows

MOST_LINES = 60
WIDTH = 150


def shortened(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def failure_lines(parts: Sequence[Line], most: int = 10) -> list[str]:
    """What a part said that failed, or why it was skipped."""
    said = []
    for part in parts:
        if part["result"] == "FAILED":
            said += [f"  {part['part']}: {line.strip()}" for line in str(part["words"]).splitlines()[:4]]
        elif part["result"] == "skipped":
            said.append(f"  {part['part']}: {str(part['words']).splitlines()[0]}")
    return said[:most]


def summary(lines: Sequence[Line], parts: Sequence[Line], targets: Sequence[Line]) -> str:
    """Parts, targets, and as many of the measurements as there is room for: first those of whole models, then all others."""
    rows = [("part", "result", "seconds"), *((part["part"], part["result"], f"{part['seconds']:.0f}") for part in parts)]
    shown = table(rows).splitlines() + failure_lines(parts)
    if targets:
        shown += ["Targets (of an H100 or H200)", *table(target_rows(targets)).splitlines()]
    buckets, others = bucket_rows(lines), other_rows(lines)
    whole = [row for row in buckets[1:] if row[0].endswith("/all")]
    sections = (
        ("Buckets of whole models", [*buckets[:1], *whole] if whole else []),
        ("Ranks on this machine's cores", core_rows(lines)),
        ("Calls and ranks", others),
    )
    for title, found in sections:
        room = MOST_LINES - len(shown) - 2
        if len(found) > (title != "Calls and ranks") and room > 2:
            shown += [title, *table(found[:room]).splitlines()]
            if len(found) > room:
                shown.append(f"  ... and {len(found) - room} more in the results")
    return "\n".join(shortened(line) for line in shown[:MOST_LINES])


def all_tables(lines: Sequence[Line], targets: Sequence[Line]) -> str:
    """Everything, for the logs."""
    parts = (
        ("Buckets: times on the device, bytes read and written", bucket_rows(lines)),
        ("Ranks on this machine's cores", core_rows(lines)),
        ("Calls and ranks", other_rows(lines)),
        ("Targets (of an H100 or H200)", target_rows(targets)),
    )
    return "\n\n".join(f"{title}\n{table(rows)}" for title, rows in parts if rows) + "\n"
