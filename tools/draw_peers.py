"""Draws how many times as long as Tarantella each peer takes: `python tools/draw_peers.py A.jsonl B.jsonl peers.png`.

A file of `tnt-bench all_reduce --against ... --format jsonl` is a line over size. Its peer and the peer's version are in it.
With `--table` it prints the same as rows of a table.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
SIZES = (4, 1024, 16384, 262144, 1048576, 16777216, 67108864)
NAMES = ("4 B", "1 KiB", "16 KiB", "256 KiB", "1 MiB", "16 MiB", "64 MiB")


def peer(row: dict[str, Any]) -> str:
    """The name and version of what a row was measured beside, such as ``Open MPI 5.0.11``."""
    if row["against"] != "mpi":
        return str(row["against"]).capitalize()
    return re.sub(r" (Version:\s*|v)", " ", row["environment"]["mpi"])


def read(files: Sequence[Path]) -> dict[str, dict[int, float]]:
    """For each peer its ratios by size, of all_reduce out of place on two ranks."""
    found: dict[str, dict[int, float]] = {}
    for file in files:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            if row.get("collective") == "all_reduce" and row["ranks"] == 2 and not row["in_place"] and row["ratio"]:
                found.setdefault(peer(row), {})[row["bytes"]] = row["ratio"]
    return found


def draw(ratios: dict[str, dict[int, float]], picture: Path) -> None:
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots()
    for (name, by_size), colour in zip(sorted(ratios.items()), COLOURS * len(ratios), strict=False):
        sizes = sorted(by_size)
        axes.plot(sizes, [by_size[size] for size in sizes], marker="o", color=colour, label=name)
    axes.set_xscale("log", base=4)
    axes.set_yscale("log", base=2)
    axes.set_xticks(SIZES, NAMES)
    ticks = (1, 2, 4, 8)
    axes.set_yticks(ticks, [f"{tick} x" for tick in ticks])
    axes.axhline(1, color="#111827", linewidth=0.8)
    axes.set_ylabel("the peer's time over Tarantella's")
    axes.set_xlabel("all_reduce of float32 on 2 ranks, out of place")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=len(ratios), frameon=False)
    figure.savefig(picture, dpi=110)


def main(words: Sequence[str]) -> None:
    if len(words) < 2:
        sys.exit(__doc__)
    *files, last = words
    ratios = read([Path(file) for file in files])
    if last != "--table":
        return draw(ratios, Path(last))
    for name, by_size in sorted(ratios.items()):
        print(f"| {name} | {' | '.join(f'{by_size[size]:.1f}' for size in SIZES)} |")
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
