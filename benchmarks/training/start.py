"""How long ranks take from the launcher's start to the end of their first step, and what memory they hold by then.

`python benchmarks/training/start.py --ranks 1 4 8` starts each number of ranks as programs of their own and as forks of the
launcher (`--preload`), in turn. Memory is the proportional set size of the launcher and all ranks: a page that several
processes share counts once in all.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

MODULES = "numpy,tensorflow,tarantella.keras.model"


def memory(pid: int | str = "self") -> float:
    """The proportional set size in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def rank(begin: float) -> None:
    """One step of a small model; rank 0 prints the seconds since the beginning and the mebibytes."""
    import numpy as np
    from tensorflow import keras

    import tarantella as tnt

    model = tnt.Model(keras.Sequential([keras.Input((64,)), keras.layers.Dense(64), keras.layers.Dense(1)]))
    model.compile("sgd", "mse")
    model.fit(np.ones((64, 64), np.float32), np.ones((64, 1), np.float32), batch_size=64, verbose=0)
    tnt.barrier()
    seconds = time.time() - begin
    own = memory() + (memory(os.getppid()) if tnt.get_rank() == 0 else 0)
    total = float(tnt.all_reduce(np.array([own]))[0])
    if tnt.get_rank() == 0:
        print(seconds, total)


def start(ranks: int, preload: bool) -> tuple[float, float]:
    """Seconds and mebibytes of one job."""
    options = ["--preload", MODULES] if preload else ["--no-preload"]
    script = [__file__, "--begin", str(time.time())]
    words = [sys.executable, "-m", "tarantella", "-n", str(ranks), *options, "--", *script]
    done = subprocess.run(words, env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} returned {done.returncode}\n{done.stderr}")
    seconds, mebibytes = done.stdout.split()[-2:]
    return float(seconds), float(mebibytes)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--begin", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.begin is not None:
        rank(given.begin)
        return
    print("| ranks | programs: first step | forks: first step | programs: memory | forks: memory |")
    print("| --- | --- | --- | --- | --- |")
    for ranks in given.ranks:
        found = [(start(ranks, preload=False), start(ranks, preload=True)) for _ in range(given.rounds)]
        medians = [[statistics.median(column) for column in zip(*jobs, strict=True)] for jobs in zip(*found, strict=True)]
        (programs_s, programs_m), (forks_s, forks_m) = medians
        print(f"| {ranks} | {programs_s:.1f} s | {forks_s:.1f} s | {programs_m:.0f} MiB | {forks_m:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
