"""The second part of tools/demo, after the installation: three runs of examples/digits/train.py, tables, and a verdict.

The serial run has no tarantella in it: it is the truth that the others are measured by. The second table is of throughput.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import draw_step

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "examples" / "digits" / "train.py"
FOLDER = ROOT / "build" / "demo"
BIN = ROOT / ".venv" / "bin"
PICTURE = FOLDER / "step.png"
THROUGHPUT = ROOT / "benchmarks" / "training" / "throughput.py"

# The whole model is smaller than one bucket of the default size, and a single bucket cannot be on its way before backward ends.
FUSION = ("--fusion-threshold", "64K")
PRELOAD = ("--preload", "tensorflow,tarantella.keras.model")  # the ranks start in the time of one import
THROUGHPUT_OPTIONS = ("--model", "cnn", "--rounds", "1", "--steps", "60", "--no-costs")
MAX_DIFFERENCE = 1e-4
MIN_ACCURACY = 0.95

# Several ranks cannot share one GPU, so all runs use the CPU.
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}
# Keras prints "Epoch 3/12", then "17/23 ━━━" repeatedly.
PROGRESS = re.compile(r"Epoch (?P<epoch>\d+)/(?P<epochs>\d+)|(?<!\d)(?P<step>\d+)/(?P<steps>\d+)")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Run:
    """One training, with its results."""

    name: str
    ranks: int  # 0: plain Keras
    results: dict[str, float] = field(default_factory=dict)
    difference: float = math.nan

    @property
    def files(self) -> Path:
        return FOLDER / self.name.replace(" ", "-")

    @property
    def command(self) -> list[str]:
        outputs = ["--json", f"{self.files}.json", "--weights", f"{self.files}.npz"]
        if self.ranks == 0:
            return [str(BIN / "python"), str(SCRIPT), "--serial", *outputs]
        timeline = ("--timeline", str(self.timeline))
        return [str(BIN / "tarantella"), "-n", str(self.ranks), *PRELOAD, *FUSION, *timeline, "--", str(SCRIPT), *outputs]

    @property
    def timeline(self) -> Path:
        return Path(f"{self.files}.trace.json")

    @property
    def accuracy(self) -> float:
        return self.results.get("accuracy", math.nan)

    @property
    def hidden(self) -> float:
        """The percentage of communication that was hidden behind computation."""
        busy, exposed = (self.results.get(key, math.nan) for key in ("busy_seconds", "exposed_seconds"))
        if not busy > 0:
            return math.nan
        return min(100.0, max(0.0, 100.0 * (1.0 - exposed / busy)))

    def weights(self) -> list[np.ndarray]:
        with np.load(f"{self.files}.npz") as file:
            return [file[name] for name in file.files]


class Failed(Exception):
    """The demo found an error, described by the text."""


def train(run: Run, progress: Progress) -> None:
    """Runs one training to its end, with a progress bar."""
    bar = progress.add_task(run.name, total=None, loss="")
    epoch = 0
    log = Path(f"{run.files}.log")
    start = time.perf_counter()
    with (
        log.open("w") as copy,
        subprocess.Popen(
            run.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
            text=True,  # with universal newlines: a carriage return ends a line too
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            text = COLOUR.sub("", line).replace("\b", "").rstrip()
            copy.write(text + "\n")
            if found := PROGRESS.search(text):
                if found["epoch"]:
                    epoch, epochs = int(found["epoch"]), int(found["epochs"])
                    progress.update(bar, total=epochs, completed=epoch - 1)
                elif epoch:
                    progress.update(bar, completed=epoch - 1 + int(found["step"]) / int(found["steps"]))
            if loss := re.search(r"loss: (\S+)$", text):
                progress.update(bar, loss=f"loss {loss[1]}")
    if process.returncode != 0:
        print("\n".join(log.read_text().splitlines()[-20:]), file=sys.stderr)
        raise Failed(f"{run.name}: {' '.join(run.command)} ended with code {process.returncode} (all it said: {log})")
    run.results = json.loads(Path(f"{run.files}.json").read_text())
    if progress.disable:
        print(f"{run.name}: done in {time.perf_counter() - start:.0f} s, loss {run.results['loss']:.4f}", flush=True)


def compare(run: Run, truth: Run) -> float:
    """The largest difference of any weight; NaN if one of them is NaN."""
    pairs = list(zip(run.weights(), truth.weights(), strict=True))
    return float(np.max([np.max(np.abs(ours - theirs)) for ours, theirs in pairs]))


def table(runs: list[Run]) -> Table:
    result = Table(title="Digits, global batch of 64: one device and many ranks")
    result.add_column("run")
    for heading in ("final loss", "test accuracy", "weights differ by", "reduced per rank", "hidden", "seconds"):
        result.add_column(heading, justify="right")
    for run in runs:
        distributed = run.ranks > 0
        result.add_row(
            run.name,
            f"{run.results['loss']:.6f}",
            f"{100 * run.accuracy:.2f} %",
            f"{run.difference:.1e}" if distributed else "-",
            f"{run.results['bytes'] / 1e6:.1f} MB" if distributed else "-",
            f"{run.hidden:.1f} %" if distributed else "-",
            f"{run.results['seconds']:.1f}",
        )
    return result


def check(runs: list[Run]) -> list[str]:
    """The errors in the results; written so that NaN is an error, too."""
    wrong = []
    for run in runs:
        if run.ranks > 0 and not run.difference <= MAX_DIFFERENCE:
            wrong.append(f"{run.name}: weights differ from the serial run's by {run.difference:.1e}, over {MAX_DIFFERENCE}")
        if run.ranks > 0 and not run.results["bytes"] > 0:
            wrong.append(f"{run.name}: nothing was reduced")
        if not run.accuracy >= MIN_ACCURACY:
            wrong.append(f"{run.name}: test accuracy is {run.accuracy:.4f}, less than {MIN_ACCURACY}")
    return wrong


def compare_throughput() -> None:
    """Prints the samples per second of plain Keras and of two ranks, for a larger network than the one above."""
    command = [str(BIN / "python"), str(THROUGHPUT), *THROUGHPUT_OPTIONS]
    job = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=False)
    if job.returncode != 0:
        print(job.stderr, file=sys.stderr)
        raise Failed(f"{' '.join(command)} ended with code {job.returncode}")
    print(job.stdout, end="")


def worst(values: list[float], choose: type[max] = max) -> float:
    return math.nan if any(math.isnan(value) for value in values) else choose(values)


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    console = Console()
    runs = [Run("serial", 0), Run("2 ranks", 2), Run("4 ranks", 4)]
    PICTURE.unlink(missing_ok=True)
    for run in runs:
        for old in FOLDER.glob(f"{run.files.name}.*"):
            old.unlink()  # a result of an earlier demo must never pass for this one's
    columns = (
        TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"),
        TimeElapsedColumn(), TextColumn("{task.fields[loss]}"),
    )  # fmt: skip
    try:
        with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
            for run in runs:
                train(run, progress)
                run.difference = compare(run, runs[0])
        console.print(table(runs))
        print(f"one step on 2 ranks: {draw_step.draw(*draw_step.read(runs[1].timeline), PICTURE)}: {PICTURE.relative_to(ROOT)}")
        wrong = check(runs)
        compare_throughput()
    except Failed as error:
        wrong = [str(error)]
    for line in wrong:
        print(f"demo: {line}", file=sys.stderr)
    sys.stderr.flush()
    difference = worst([run.difference for run in runs])
    accuracy = worst([run.accuracy for run in runs], min)
    verdict = "failed" if wrong else "ok"
    print(f"demo: {verdict} max_weight_diff={difference:.3g} accuracy={accuracy:.4f} hidden={runs[1].hidden:.1f}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
