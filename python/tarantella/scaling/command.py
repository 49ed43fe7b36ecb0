"""``tarantella simulate``: predicts how a training would scale on a machine, before anybody queues for it."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tarantella.errors import InvalidArgumentError
from tarantella.launcher.base.words import UsageError
from tarantella.pipeline_schedule import NAMES
from tarantella.scaling import model, simulator
from tarantella.scaling.picture import PictureError, draw
from tarantella.scaling.pipeline import PipelinePrediction, predict_pipeline
from tarantella.scaling.pipeline_timeline import PipelineStep, has_pipeline, pipeline_in
from tarantella.scaling.platform import Machine, PlatformError, find_platform, read_machine
from tarantella.scaling.prediction import Prediction, Times, predict
from tarantella.scaling.timeline import Step, TimelineError, read_events, step_in

ANALYTIC = "the analytic model of our algorithms"
SIMULATED = "our algorithms in simulated time (SimGrid)"
MESSAGES = "latency and bandwidth of single messages"


def simulate(argv: Sequence[str]) -> str:
    """Returns what to print. Raises UsageError."""
    given = _parse(argv)
    try:
        platform = find_platform(given.platform)
        machine = read_machine(platform)
        _check_ranks(given.ranks, machine, platform)
        events = read_events(given.timeline)
        return (_pipeline if has_pipeline(events) else _data_parallel)(given, events, machine, platform)
    except (TimelineError, PlatformError, PictureError, simulator.SimulatorError, InvalidArgumentError) as error:
        raise UsageError(f"simulate: {error}") from None


def _data_parallel(given: argparse.Namespace, events: list[dict[str, Any]], machine: Machine, platform: Path) -> str:
    for flag in ("schedule", "micro_batches", "stages_per_rank"):
        if getattr(given, flag) is not None:
            flag = flag.replace("_", "-")
            raise UsageError(f"simulate: --{flag} is for a pipeline, and {given.timeline} is the timeline of none")
    step = step_in(given.timeline, events)
    times, source = _times(given, step, machine, platform)
    curves = {
        "weak": predict(step, given.ranks, times, strong=False),
        "strong": predict(step, given.ranks, times, strong=True),
    }
    if given.plot:
        draw(curves, given.plot, f"{given.timeline.name} on {platform.stem}")
    return _json(curves, source) if given.json else _table(step, platform, curves, source)


def _pipeline(given: argparse.Namespace, events: list[dict[str, Any]], machine: Machine, platform: Path) -> str:
    if given.model == "simulated":
        raise UsageError(f"simulate: --model simulated: {given.timeline} is of a pipeline, for which --model is analytic")
    step = pipeline_in(given.timeline, events)
    each = given.stages_per_rank or 1
    name = given.schedule or ("1f1b" if each == 1 else "interleaved")
    curve = predict_pipeline(step, machine, name, given.ranks, given.micro_batches or step.micro_batches, each)
    if given.plot:
        draw({name: curve}, given.plot, f"{given.timeline.name} on {platform.stem}")
    return _json({name: curve}, MESSAGES) if given.json else _pipeline_table(step, platform, name, curve)


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
        help="timeline of a run on two ranks, data parallel or a pipeline: `tarantella -n 2 --timeline FILE`",
    )
    add("--platform", required=True, metavar="FILE", help="a platform file of SimGrid, or the name of a shipped one")
    add("--ranks", type=_ranks, required=True, metavar="LIST", help="numbers of ranks: 1,2,4,8")
    add("--model", choices=("auto", "analytic", "simulated"), default="auto", help="source of the communication times")
    add(
        "--schedule", choices=NAMES, help="schedule of a pipeline (default: 1f1b, or interleaved with several stages on a rank)"
    )
    add("--micro-batches", type=_number, metavar="N", help="micro-batches in a pipeline's step (default: as in the timeline)")
    add("--stages-per-rank", type=_number, metavar="N", help="stages of a pipeline on each rank (default: 1)")
    add("--simulator", type=Path, metavar="PROGRAM", help="use tnt-simulated of another build")
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


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 on")
    return int(text)


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


def _pipeline_table(step: PipelineStep, platform: Path, name: str, curve: Sequence[PipelinePrediction]) -> str:
    lines = [
        f"simulated: {platform.stem}, schedule {name}",
        f"a step of the timeline has {len(step.forward)} stages on {step.ranks} ranks and {step.micro_batches} micro-batches; "
        f"each takes {sum(step.forward) * 1e3:.2f} ms forward and {sum(step.backward) * 1e3:.2f} ms back through all stages, "
        f"and up to {step.message} bytes between two",
        f"the step took {step.measured * 1e3:.2f} ms; while its tasks ran, its ranks waited {step.bubble:.1%} of the time",
        "",
        f"{'ranks':>6} {'stages':>7} {'micro-batches':>14} {'step ms':>10} {'messages ms':>12} {'bubble':>8} "
        f"{'of schedule':>12} {'speed-up':>9} {'efficiency':>11}",
    ]
    lines += [
        f"{p.ranks:6d} {p.stages:7d} {p.micro_batches:14d} {p.step * 1e3:10.2f} {p.messages * 1e3:12.2f} {p.bubble:8.1%} "
        f"{p.schedule_bubble:12.1%} {p.speed_up:9.2f} {p.efficiency:11.1%}"
        for p in curve
    ]
    return "\n".join(lines) + "\n"


def _json(curves: Mapping[str, Sequence[Prediction | PipelinePrediction]], source: str) -> str:
    found = {name: [vars(prediction) for prediction in curve] for name, curve in curves.items()}
    return json.dumps({"simulated": True, "communication": source, **found}, indent=1) + "\n"
