"""The times of collectives from tnt-simulated: our algorithms in simulated time. It is there if built with TNT_SIMGRID."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

ELEMENT = 4  # bytes of a float32


class SimulatorError(Exception):
    """The simulation failed; the text says why."""


def find_simulator() -> Path | None:
    program = Path(__file__).parents[1] / "bin" / "tnt-simulated"
    return program if program.exists() else None


def all_reduce_seconds(program: Path, platform: Path, ranks: int, sizes: Sequence[int]) -> dict[int, float]:
    """The seconds for each size in bytes. Raises SimulatorError."""
    whole = {size: max(ELEMENT, size // ELEMENT * ELEMENT) for size in sizes}
    command = [program, "all_reduce", "--backend", "simulated", "--platform", platform, "--ranks", ranks, "--check", "off"]
    command += ["--format", "jsonl", "--sizes", ",".join(map(str, sorted(set(whole.values()))))]
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SimulatorError(f"cannot start {program}: {error.strerror}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise SimulatorError(said[-1].removeprefix("tnt-bench: ") if said else f"{program} ended with code {done.returncode}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    times = {row["bytes"]: row["time_us_p50"] * 1e-6 for row in rows if "time_us_p50" in row}
    return {size: times[rounded] for size, rounded in whole.items()}
