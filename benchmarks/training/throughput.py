"""Samples per second of a model: plain Keras on one core and on all, and on ranks of one core each.

    python benchmarks/training/throughput.py --model resnet50 --ranks 2

The runs take turns, round by round, and the medians count. A second table says what a step on ranks costs beyond its part of
a step on one core: a smaller batch for each rank, cores that share memory and caches, and Tarantella.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jobs
import workloads
from rich.console import Console
from rich.table import Table

BATCH = {"resnet50": 32, "transformer": 16, "bert_small": 8}
ONE_CORE, ALL_CORES = "plain Keras, 1 core", "plain Keras, all cores"


@dataclass(frozen=True)
class Setup:
    """One kind of run. Its measurement is a line of step_times.py."""

    name: str
    measure: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """Medians over rounds."""

    name: str
    step_ms: float
    samples_per_second: float
    memory_mib: float
    """Of a process: the most that was resident."""
    efficiency: float | None = None
    """Of ranks: samples per second over those of one core, times the cores that the ranks have."""
    exposed_ms: float | None = None
    """Of ranks: by how much the same ranks are faster if nothing is exchanged."""


@dataclass(frozen=True)
class Cost:
    """Where the time of a step on several ranks goes, in milliseconds."""

    ranks: int
    part_of_one_core: float
    smaller_batch: float
    shared_memory: float
    reduction: float
    """The part of the reductions that nothing hides, and the wait for slower ranks in them."""
    others: float
    """Splitting batches, metrics, callbacks, ops."""


def setups(given: argparse.Namespace, cores: Sequence[int]) -> list[Setup]:
    """All that is measured, in the order of a round."""
    options = ["--model", given.model, "--rounds", "1", "--steps", str(given.steps)]

    def plain(batch: int, *core: str) -> Callable[[], dict[str, Any]]:
        return lambda: jobs.alone([*options, "--batch", str(batch), *core])

    def on_ranks(n: int) -> Callable[[], dict[str, Any]]:
        return lambda: jobs.on_ranks(["-n", str(n)], [*options, "--batch", str(given.batch)])

    first = ("--core", str(cores[0]))
    found = [Setup(ONE_CORE, plain(given.batch, *first)), Setup(ALL_CORES, plain(given.batch))]
    for n in given.ranks:
        if not given.no_costs:
            found.append(Setup(of_part(n), plain(given.batch // n, *first)))
        found.append(Setup(of_ranks(n), on_ranks(n)))
    return found


def of_part(ranks: int) -> str:
    return f"1/{ranks} of the batch, 1 core"


def of_ranks(ranks: int) -> str:
    return f"{ranks} ranks"


def medians(rounds: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Of each setup, the median over rounds of each number."""
    first = rounds[0]
    return {
        name: {key: statistics.median(one[name][key] for one in rounds) for key in numbers} for name, numbers in first.items()
    }


def rows(found: dict[str, dict[str, float]], batch: int, ranks: Sequence[int], cores: int) -> list[Row]:
    def row(name: str, **more: float) -> Row:
        step = found[name]["step_ms"]
        return Row(name, step, 1e3 * batch / step, found[name]["memory_mib"], **more)

    one_core = found[ONE_CORE]["step_ms"]
    result = [row(ONE_CORE), row(ALL_CORES)]
    for n in ranks:
        numbers = found[of_ranks(n)]
        efficiency = one_core / (numbers["step_ms"] * min(n, cores))
        exposed = numbers["step_ms"] - numbers["step_ms_without_communication"]
        result.append(row(of_ranks(n), efficiency=efficiency, exposed_ms=exposed))
    return result


def cost(found: dict[str, dict[str, float]], ranks: int, cores: int) -> Cost:
    """The parts add up to the step on ranks."""
    on_ranks, in_turn = found[of_ranks(ranks)], ranks / min(ranks, cores)  # more ranks than cores take turns
    part = found[ONE_CORE]["step_ms"] / min(ranks, cores)
    alone = found[of_part(ranks)]["step_ms"] * in_turn
    reduction = on_ranks["reducer_exposed_ms"]
    exchanged = on_ranks["step_ms"] - on_ranks["step_ms_without_communication"]
    return Cost(
        ranks=ranks,
        part_of_one_core=part,
        smaller_batch=alone - part,
        shared_memory=on_ranks["step_ms_without_communication"] - alone,
        reduction=reduction,
        others=exchanged - reduction,
    )


def show(model: str, batch: int, table: Sequence[Row], costs: Sequence[Cost]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120)
    speed = Table(title=f"{model}, global batch of {batch}")
    speed.add_column("run")
    for heading in ("ms a step", "samples/s", "efficiency", "exposed ms", "MiB a process"):
        speed.add_column(heading, justify="right")
    for row in table:
        efficiency = "-" if row.efficiency is None else f"{row.efficiency:.0%}"
        exposed = "-" if row.exposed_ms is None else f"{row.exposed_ms:.1f}"
        numbers = (f"{row.step_ms:.1f}", f"{row.samples_per_second:.0f}", efficiency, exposed, f"{row.memory_mib:.0f}")
        speed.add_row(row.name, *numbers)
    console.print(speed)
    if not costs:
        return
    parts = Table(title="where a step's milliseconds go")
    for heading in ("ranks", "part of 1 core", "smaller batch", "shared memory", "reduction, exposed", "rest of Tarantella"):
        parts.add_column(heading, justify="right")
    for one in costs:
        times = (one.part_of_one_core, one.smaller_batch, one.shared_memory, one.reduction, one.others)
        parts.add_row(str(one.ranks), *(f"{ms:.1f}" for ms in times))
    console.print(parts)


def draw(model: str, batch: int, table: Sequence[Row], file: Path) -> None:
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(6, 1 + 0.5 * len(table)), layout="constrained")
    axes = figure.subplots()
    colours = ["0.6" if row.efficiency is None else "#0b7a75" for row in table]
    bars = axes.barh([row.name for row in table], [row.samples_per_second for row in table], color=colours)
    axes.bar_label(bars, fmt="%.0f", padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("samples per second")
    axes.set_title(f"{model}, global batch of {batch}")
    figure.savefig(file)


def _numbers(text: str) -> list[int]:
    numbers = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if min(numbers) < 2:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers of ranks from 2, as in 2,4")
    return numbers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=workloads.MODELS, required=True)
    parser.add_argument("--ranks", type=_numbers, default=[2], help="numbers of ranks, from 2, with commas between them")
    parser.add_argument("--batch", type=int, help="samples of a step, of all ranks together")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run in a round")
    parser.add_argument("--rounds", type=int, default=3, help="the medians of so many rounds count")
    parser.add_argument("--no-costs", action="store_true", help="do not measure where a step's time goes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw samples per second")
    given = parser.parse_args()
    given.batch = given.batch or BATCH.get(given.model, workloads.GLOBAL_BATCH)
    for n in given.ranks:
        if given.batch % n:
            parser.error(f"--batch {given.batch} cannot be divided by {n} ranks")
    workloads.check_steps(parser, given.steps)
    cores = sorted(os.sched_getaffinity(0))
    measured = [{setup.name: setup.measure() for setup in setups(given, cores)} for _ in range(given.rounds)]
    found = medians(measured)
    table = rows(found, given.batch, given.ranks, len(cores))
    costs = [] if given.no_costs else [cost(found, n, len(cores)) for n in given.ranks]
    show(given.model, given.batch, table, costs)
    if given.json:
        every = {"model": given.model, "batch": given.batch, "cores": len(cores), "medians": found, "rounds": measured}
        every |= {"rows": [vars(row) for row in table], "costs": [vars(one) for one in costs]}
        given.json.write_text(json.dumps(every, indent=1) + "\n")
    if given.plot:
        draw(given.model, given.batch, table, given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
