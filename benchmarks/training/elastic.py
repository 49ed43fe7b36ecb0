"""What `tarantella --elastic` costs, and how soon a training goes on when ranks are lost and others join.

    python benchmarks/training/elastic.py --model cnn                      losses and joins, on 4 ranks
    python benchmarks/training/elastic.py --model cnn --plot elastic.png   draws the rate of samples over time as well
    python benchmarks/training/elastic.py --model mlp --cost 5             steps with the flag and without, in 5 turns
    python benchmarks/training/elastic.py --model mlp --cost 5 --by-epoch  the same, and no callback hears of batches

Prints one line of JSON. A loss is the time from SIGKILL to the end of the next step of fewer ranks. A join is how much longer
the slowest step around it took than the median step. Both contain the traces of the steps for another number of ranks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jobs
import workloads

SELF = Path(__file__).resolve()
LOSSES = (1, 0)
"""The ranks of the beginning that are lost, one after another."""
EPOCH = 100  # steps
WINDOW = 1.0
"""Seconds over which the drawn rate is a mean."""


def train(folder: Path, model_name: str, batch: int, steps: int, by_epoch: bool) -> None:
    """A rank: trains until the folder has a file ``enough``, and notes when each step has ended on how many ranks.

    by_epoch: it notes ends of epochs instead, as if all steps of one took equally long.
    """
    import keras

    import tarantella as tnt

    with (folder / f"{os.getpid()}.steps").open("w", buffering=1) as ends:

        class Clock(keras.callbacks.Callback):  # type: ignore[misc]
            def note(self, at: float) -> None:
                ends.write(f"{at} {tnt.get_size()}\n")
                self.model.stop_training = (folder / "enough").exists()

        class ClockOfSteps(Clock):
            def on_train_batch_end(self, step: int, logs: Any = None) -> None:
                self.note(time.time())

        class ClockOfEpochs(Clock):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.begin = time.time()

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                length = (time.time() - self.begin) / EPOCH
                for step in range(EPOCH):
                    self.note(self.begin + (1 + step) * length)

        model = workloads.compiled(keras, tnt.Model(workloads.build(keras, model_name)), False)
        x, y = workloads.samples(model, EPOCH * batch)
        model.fit(
            x,
            y,
            batch_size=batch,
            epochs=max(1, steps // EPOCH),
            verbose=0,
            callbacks=[ClockOfEpochs() if by_epoch else ClockOfSteps()],
        )


class Job:
    def __init__(self, folder: Path, ranks: int, options: list[str], given: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "tarantella", "-n", str(ranks), *options, "--", str(SELF), "--model", given.model]
        command += ["--batch", str(given.batch), "--steps", str(given.steps), "--rank", str(folder)]
        command += ["--by-epoch"] if given.by_epoch else []
        self.folder, self.ranks = folder, ranks
        self.process = subprocess.Popen(command, env={**os.environ, **jobs.QUIET}, stdout=subprocess.DEVNULL)

    def steps(self) -> dict[int, list[tuple[float, int]]]:
        """For each process that has trained, when its steps have ended, and on how many ranks."""
        found = {}
        for file in self.folder.glob("*.steps"):
            lines = [line.split() for line in file.read_text().splitlines() if line.count(" ") == 1]
            found[int(file.stem)] = [(float(end), int(ranks)) for end, ranks in lines]
        return found

    def wait_for(self, steps: int, ranks: int, least: float) -> None:
        """Returns when so many steps have ended on so many ranks since a time."""
        while self.process.poll() is None:
            ended = max((sum(end > least and there == ranks for end, there in one) for one in self.steps().values()), default=0)
            if ended >= steps:
                return
            time.sleep(0.01)
        raise SystemExit(f"the job ended with code {self.process.returncode}")

    def end(self) -> None:
        (self.folder / "enough").touch()
        if self.process.wait(300) != 0:
            raise SystemExit(f"the job ended with code {self.process.returncode}")


def lose_and_join(given: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        job = Job(Path(name), given.ranks, ["--elastic", "--replacements", "10"], given)
        since, killed, joined = 0.0, [], []
        for _ in LOSSES:
            job.wait_for(given.between, given.ranks, since)
            alive = sorted(pid for pid in job.steps() if Path(f"/proc/{pid}").exists())
            since = time.time()
            os.kill(alive[0], signal.SIGKILL)
            killed.append(since)
            job.wait_for(1, given.ranks, since)
            joined.append(time.time())
        job.wait_for(given.between, given.ranks, since)
        job.end()
        steps = job.steps().values()
    longest = max(steps, key=len)
    median = statistics.median(after - before for (before, _), (after, _) in itertools.pairwise(longest))
    losses = [min(end for one in steps for end, ranks in one if end > at and ranks < given.ranks) - at for at in killed]
    joins = [max(length for one in steps for length in lengths_around(one, at)) - median for at in joined]
    if given.plot is not None:
        draw(longest, killed, joined, given)
    return {
        "step_ms": 1e3 * median,
        "loss_s": losses,
        "join_s": joins,
        "until_joined_s": [b - a for a, b in zip(killed, joined, strict=True)],
    }


def lengths_around(steps: list[tuple[float, int]], at: float) -> list[float]:
    """Of the steps of a rank within a second of a time."""
    return [after - before for (before, _), (after, _) in itertools.pairwise(steps) if before - 1 < at < after + 1]


def cost(given: argparse.Namespace) -> dict[str, Any]:
    """Medians of steps with the flag and without. Every second turn has the other order, since machines drift."""
    found: dict[str, list[float]] = {"plain": [], "elastic": []}
    for turn in range(given.cost):
        for kind in ("plain", "elastic") if turn % 2 == 0 else ("elastic", "plain"):
            options = ["--elastic"] if kind == "elastic" else []
            with tempfile.TemporaryDirectory() as name:
                job = Job(Path(name), 2, options, given)
                job.wait_for(given.steps // 2, 2, 0)
                job.end()
                ends = [end for end, _ in max(job.steps().values(), key=len)][10:]
            found[kind].append(1e3 * statistics.median(b - a for a, b in itertools.pairwise(ends)))
    medians = {f"{kind}_ms": statistics.median(values) for kind, values in found.items()}
    return {**medians, "ratio": medians["elastic_ms"] / medians["plain_ms"], "turns": found}


def draw(steps: list[tuple[float, int]], killed: list[float], joined: list[float], given: argparse.Namespace) -> None:
    from matplotlib.figure import Figure

    begin = steps[0][0]
    ends = [end - begin for end, _ in steps]
    times = [WINDOW * i for i in range(1, int(ends[-1] / WINDOW))]
    rates = [given.batch * sum(at - WINDOW < end <= at for end in ends) / WINDOW for at in times]
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.step(times, rates, where="pre", color="#0072b2")
    for moments, colour, text in ((killed, "#d55e00", "a rank is killed"), (joined, "#009e73", "its replacement has joined")):
        for i, at in enumerate(moments):
            axes.axvline(at - begin, color=colour, linewidth=1.2, label=text if i == 0 else None)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("samples/s, all ranks")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(given.plot, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=workloads.MODELS, default="cnn")
    parser.add_argument("--batch", type=int, default=workloads.GLOBAL_BATCH)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4000, help="at most")
    parser.add_argument("--between", type=int, default=100, help="steps of all ranks before a loss, and after the last join")
    parser.add_argument("--cost", type=int, metavar="TURNS", help="measure steps with and without --elastic instead")
    parser.add_argument("--by-epoch", action="store_true", help="with --cost: no callback hears of batches")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.by_epoch and given.rank is None and given.cost is None:
        parser.error("--by-epoch: losses and joins are measured by steps; use it with --cost")
    if given.rank is not None:
        train(given.rank, given.model, given.batch, given.steps, given.by_epoch)
        return
    print(json.dumps({"model": given.model, **(lose_and_join(given) if given.cost is None else cost(given))}))


if __name__ == "__main__":
    main()
