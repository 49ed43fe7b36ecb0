"""Barriers and all_reduce of 8 and 16 ranks, each bound to a core: one level beside two, with 4 and 8 ranks to a domain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from gpu_check.run import Clock, Failed, Line, Skipped, job, json_lines

LAYOUTS = {8: (1, 4), 16: (1, 4, 8)}  # ranks: of them, how many to a domain; 1: one level
ROUNDS = 2  # in turn; the shorter time counts
CALLS = (("barrier",), ("all_reduce", "--sizes", "1K,16K,256K,4M", "--place", "in"))
SECONDS = 0.2  # for a size
BIND = "import os, sys; os.sched_setaffinity(0, {int(os.environ['CORE'])}); os.execv(sys.argv[1], sys.argv[1:])"


def measure(program: Path, ranks: int, each: int, clock: Clock) -> dict[str, float]:
    """Microseconds of each call."""
    cores = sorted(os.sched_getaffinity(0))
    found = {}
    for call in CALLS:
        words = [sys.executable, "-c", BIND, program, *call, "--max-time", SECONDS, "--format", "jsonl"]

        def env_of(rank: int) -> dict[str, str]:
            return {"TNT_INTERNAL_DOMAIN": str(each), "CORE": str(cores[rank % len(cores)])}

        rows = [row for row in json_lines(job(f"domains-{call[0]}-{ranks}-{each}", ranks, words, clock.limit(45), env_of))
                if "collective" in row]  # fmt: skip
        if not rows:
            raise Failed(f"tnt-bench {call[0]} on {ranks} ranks measured nothing")
        for row in rows:
            if row["check"] not in ("ok", "off"):
                raise Failed(f"{call[0]} of {row['bytes']} bytes on {ranks} ranks, {each} to a domain: {row['check']}")
            found[f"{row['collective']}/{row['bytes']}"] = row["time_us_p50"]
    return found


def check_domains(program: Path, clock: Clock, add: Callable[[list[Line]], None]) -> str:
    """Adds the lines of each number of ranks as they come, and returns how many ranks were compared."""
    cores = len(os.sched_getaffinity(0))
    layouts = {ranks: sizes for ranks, sizes in LAYOUTS.items() if ranks <= cores}
    if not layouts:
        raise Skipped(f"{cores} cores, and {min(LAYOUTS)} ranks need one each")
    for ranks, sizes in layouts.items():
        best: dict[tuple[str, int], float] = {}
        for _ in range(ROUNDS):
            for each in sizes:
                for call, us in measure(program, ranks, each, clock).items():
                    best[call, each] = min(us, best.get((call, each), us))
        add([{"case": f"domains/{call}/{ranks} ranks/{each}", "us": us, "ratio_to_one_level": us / best[call, 1]}
             for (call, each), us in best.items()])  # fmt: skip
    return f"{' and '.join(map(str, layouts))} ranks on {cores} cores"
