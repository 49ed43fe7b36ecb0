"""``tarantella simulate``: how a training would scale on a machine, before anybody queues for it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from tarantella.launcher.errors import UsageError
from tarantella.scaling import model, simulator
from tarantella.scaling.picture import PictureError, draw
from tarantella.scaling.platform import Machine, PlatformError, find_platform, read_machine
from tarantella.scaling.prediction import Prediction, Times, predict
from tarantella.scaling.timeline import Step, TimelineError, read_step

ANALYTIC = "the analytic model of our algorithms"
SIMULATED = "our algorithms in simulated time (SimGrid)"


def simulate(argv: Sequence[str]) -> str:
    """Returns what to print. Raises UsageError."""
    given = _parse(argv)
    try:
        step = read_step(given.timeline)
        platform = find_platform(given.platform)
        machine = read_machine(platform)
        _check_ranks(given.ranks, machine, platform)
        times, source = _times(given, step, machine, platform)
        curves = {
            "weak": predict(step, given.ranks, times, strong=False),
            "strong": predict(step, given.ranks, times, strong=True),
        }
        if given.plot:
            draw(curves, given.plot, f"{given.timeline.name} on {platform.stem}")
    except (TimelineError, PlatformError, PictureError, simulator.SimulatorError) as error:
        raise UsageError(f"simulate: {error}") from None
    return _json(curves, source) if given.json else _table(step, platform, curves, source)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"simulate: {message}; see tarantella simulate --help")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="tarantella simulate", description=__doc__)
    add = parser.add_argument
    add(
        "--timeline",
        type=Path,
        required=True,
        metavar="FILE",
        help="of a run on two ranks: `tarantella -n 2 --timeline FILE`",
    )
    add("--platform", required=True, metavar="FILE", help="a platform file of SimGrid, or the name of a shipped one")
    add("--ranks", type=_ranks, required=True, metavar="LIST", help="numbers of ranks: 1,2,4,8")
    add("--model", choices=("auto", "analytic", "simulated"), default="auto", help="where the times of communication come from")
    add("--simulator", type=Path, metavar="PROGRAM", help="tnt-simulated of another build")
    add("--plot", type=Path, metavar="FILE", help="draw speed-up over ranks: PNG, SVG or PDF")
    add("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def _ranks(text: str) -> list[int]:
    try:
        ranks = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of numbers such as 1,2,4") from None
    if min(ranks) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': a job has at least one rank")
    return sorted(set(ranks))


def _check_ranks(ranks: Sequence[int], machine: Machine, platform: Path) -> None:
    if max(ranks) > machine.max_ranks:
        raise PlatformError(
            f"{platform}: {max(ranks)} ranks do not fit: it has {machine.nodes} nodes for {machine.ranks_per_node} ranks each, "
            f"{machine.max_ranks} in all"
        )


def _times(given: argparse.Namespace, step: Step, machine: Machine, platform: Path) -> tuple[Times, str]:
    program = given.simulator or simulator.find_simulator()
    if given.model == "simulated" and program is None:
        raise UsageError("simulate: --model simulated: built without SimGrid: build with -DTNT_SIMGRID=ON, or name --simulator")
    if given.model == "analytic" or program is None:

        def analytic(ranks: int, size: int) -> tuple[float, str]:
            cost = model.all_reduce(machine, ranks, size)
            return cost.seconds, cost.limit

        return analytic, ANALYTIC
    sizes = sorted({bucket.bytes for bucket in step.buckets})
    known = {n: simulator.all_reduce_seconds(program, platform, n, sizes) for n in given.ranks if n > 1}

    def simulated(ranks: int, size: int) -> tuple[float, str]:
        return (known[ranks][size] if ranks > 1 else 0.0), model.all_reduce(machine, ranks, size).limit

    return simulated, SIMULATED


def _table(step: Step, platform: Path, curves: Mapping[str, Sequence[Prediction]], source: str) -> str:
    lines = [
        f"simulated: {platform.stem}; times of communication: {source}",
        f"a step of the timeline computes {step.compute * 1e3:.2f} ms (backward ends at {step.backward * 1e3:.2f} ms) and "
        f"reduces {step.bytes / 2**20:.1f} MiB in {len(step.buckets)} buckets; it took {step.measured * 1e3:.2f} ms "
        f"on {step.ranks} rank{'s' if step.ranks > 1 else ''}",
    ]
    for name, curve in curves.items():
        batch = "the timeline's batch on each rank" if name == "weak" else "the timeline's batch over all ranks"
        lines += ["", f"{name} scaling ({batch})"]
        lines.append(f"{'ranks':>6} {'step ms':>10} {'exposed ms':>11} {'speed-up':>9} {'efficiency':>11}  limit")
        lines += [
            f"{p.ranks:6d} {p.step * 1e3:10.2f} {p.exposed * 1e3:11.2f} {p.speed_up:9.2f} {p.efficiency:10.1%}  {p.limit}"
            for p in curve
        ]
    return "\n".join(lines) + "\n"


def _json(curves: Mapping[str, Sequence[Prediction]], source: str) -> str:
    found = {name: [vars(prediction) for prediction in curve] for name, curve in curves.items()}
    return json.dumps({"simulated": True, "communication": source, **found}, indent=1) + "\n"
