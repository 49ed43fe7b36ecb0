"""all_reduce in shared memory on 2, 4, 8, 16 ... ranks of this machine, beside Gloo through PyTorch and beside MPI."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpu_check import prebuilt
from gpu_check.run import ROOT, Clock, Failed, Line, call, job, json_lines

RANKS = (2, 4, 8, 16)
SIZES = tuple(4 * 8**power for power in range(9))  # 4 B to 64 MiB
GLOO = ROOT / "tools" / "gpu_check" / "gloo.py"
SECONDS = 0.2  # for a size


def ranks_of(cores: int) -> list[int]:
    """As many as have a core each; two in any case."""
    return [ranks for ranks in RANKS if ranks <= max(cores, 2)]


def mpi_env() -> Mapping[str, str] | None:
    """The variables with which an mpirun is found: of the wheel that came along, else of this machine; None: there is none."""
    if prebuilt.MPI.is_dir():
        path = f"{prebuilt.MPI / 'bin'}:{os.environ['PATH']}"
        return {"PATH": path, "OPAL_PREFIX": str(prebuilt.MPI), "LD_LIBRARY_PATH": str(prebuilt.MPI / "lib")}
    return {} if shutil.which("mpirun") else None


def lines_of(row: Line) -> list[Line]:
    """A row of tnt-bench as one of ours, and that of the library beside it."""
    place = f"{row['bytes']}/{row['ranks']} ranks"
    lines = [{"case": f"cores/{row['backend']}/{place}", "bytes": row["bytes"], "us": row["time_us_p50"],
              "us_p95": row["time_us_p95"], "check": row["check"]}]  # fmt: skip
    if row.get("against_time_us_p50") is not None:
        lines.append({"case": f"cores/{row['against']}/{place}", "bytes": row["bytes"], "us": row["against_time_us_p50"],
                      "us_p95": row["against_time_us_p95"]})  # fmt: skip
    return lines


def check_bench(said: str) -> list[Line]:
    rows = [row for row in json_lines(said) if row.get("collective") == "all_reduce"]
    if not rows:
        raise Failed("tnt-bench measured nothing")
    if wrong := [f"{row['bytes']} bytes ({row['check']})" for row in rows if row["check"] != "ok"]:
        raise Failed(f"wrong sums of {', '.join(wrong)}")
    return [line for row in rows for line in lines_of(row)]


def run_bench(program: Path, ranks: int, clock: Clock) -> list[Line]:
    """Ours, and MPI's in the same run if there is one."""
    words = [program, "all_reduce", "--ranks", ranks, "--sizes", ",".join(map(str, SIZES)), "--place", "in",
             "--max-time", SECONDS, "--format", "jsonl", "--timeout", 30]  # fmt: skip
    env = mpi_env()
    if env is not None:
        try:
            return check_bench(call(f"cores-mpi-{ranks}", [*words, "--against", "mpi"], clock.limit(60), env))
        except Failed as failure:
            print(f"cores: {ranks} ranks are measured without MPI: {failure}", flush=True)
    return check_bench(call(f"cores-{ranks}", words, clock.limit(45)))


def run_gloo(ranks: int, clock: Clock) -> list[Line]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, GLOO, Path(folder) / "meet", SECONDS, *SIZES]
        env = {"WORLD_SIZE": str(ranks), "GLOO_SOCKET_IFNAME": "lo"}
        return json_lines(job(f"gloo-{ranks}", ranks, words, clock.limit(45), lambda rank: {**env, "RANK": str(rank)}))


def core_rows(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """A row for each size: microseconds of each library, for each number of ranks."""
    found = {}
    for line in lines:
        if line["case"].startswith("cores/"):
            _, backend, _, ranks = line["case"].split("/")
            found[int(ranks.split()[0]), backend, line["bytes"]] = line["us"]
    columns = {(ranks, backend) for ranks, backend, _ in found}
    columns = sorted(columns, key=lambda column: (column[0], column[1] != "shm", column[1]))  # ours first
    rows = [("us of all_reduce, bytes", *(f"{backend}, {ranks}" for ranks, backend in columns))]
    for size in sorted({size for _, _, size in found}):
        numbers = (found.get((*column, size)) for column in columns)
        rows.append((str(size), *("-" if us is None else f"{us:.4g}" for us in numbers)))
    return rows


def check_cores(program: Path, clock: Clock, add: Callable[[list[Line]], None], has_torch: bool) -> str:
    """Adds the lines of each number of ranks as they come, and returns what was compared with what."""
    failures: list[str] = []
    beside: set[str] = set()
    for ranks in ranks_of(len(os.sched_getaffinity(0))):
        runs: Sequence[tuple[str, Callable[[], list[Line]]]] = (
            ("tnt-bench", lambda ranks=ranks: run_bench(program, ranks, clock)),  # type: ignore[misc]
            *([("Gloo", lambda ranks=ranks: run_gloo(ranks, clock))] if has_torch else []),  # type: ignore[misc]
        )
        for name, run in runs:
            try:
                lines = run()
            except Failed as failure:
                failures.append(f"{name} on {ranks} ranks: {failure}")
                continue
            beside |= {line["case"].split("/")[1] for line in lines}
            add(lines)
    if failures:
        raise Failed("\n".join(failures))
    return f"{len(os.sched_getaffinity(0))} cores: {', '.join(sorted(beside))}"
