"""The predecessor's three published scaling figures, simulated for Tarantella: `python benchmarks/training/scaling.py`.

Nothing is trained and nothing is measured: a step is made of a published throughput of one device and of the model's tensors
(benchmarks/models), its communication of the times of our all_reduce on a platform file. Prints the tables of docs/scaling.md
and draws docs/scaling.svg. `--simulator build/.../tnt-simulated` takes SimGrid's times in place of the formulas.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tarantella.scaling import model, simulator
from tarantella.scaling.platform import SHIPPED, read_machine
from tarantella.scaling.prediction import Prediction, Times, predict
from tarantella.scaling.timeline import Bucket, Step

ROOT = Path(__file__).resolve().parents[2]
FORWARD = 1 / 3  # of the computation; backward takes twice as long
FUSION_THRESHOLD = 4 << 20


@dataclass(frozen=True)
class Setting:
    title: str
    model: str
    platform: str
    batch: int
    throughput: float
    """Of one rank: images or tokens per second."""
    serial: float
    """Of the run that the published speed-ups count from."""
    published: dict[int, float]
    """Speed-ups of the predecessor by ranks."""


# minutes for an epoch of 1,281,167 images or of WMT14, as published with the predecessor
CPU_MINUTES = {1: 281.33, 4: 190.19, 8: 102.38, 16: 51.46, 32: 28.41, 64: 13.33, 128: 6.81, 256: 4.52}
GPU_MINUTES = {1: 66.77, 6: 12.47, 12: 6.43, 24: 3.51, 48: 1.71, 96: 1.16}
TRANSFORMER_MINUTES = {1: 590.93, 6: 199.30, 12: 109.21, 24: 63.06, 48: 31.21, 96: 17.02}
IMAGES = 1_281_167


def _speed_ups(minutes: dict[int, float]) -> dict[int, float]:
    return {ranks: minutes[1] / taken for ranks, taken in minutes.items()}


SETTINGS = [
    # four ranks share a node; one rank of four has a quarter of what the node does without any network
    Setting(
        title="ResNet-50, CPU, 4 ranks a node",
        model="resnet50",
        platform="fat-tree-100g",
        batch=64,
        throughput=IMAGES / (CPU_MINUTES[4] * 60) / 4,
        serial=IMAGES / (CPU_MINUTES[1] * 60),
        published=_speed_ups(CPU_MINUTES),
    ),
    Setting(
        title="ResNet-50, V100, 6 a node",
        model="resnet50",
        platform="gpu-nodes-2x100g",
        batch=64,
        throughput=IMAGES / (GPU_MINUTES[1] * 60),
        serial=IMAGES / (GPU_MINUTES[1] * 60),
        published=_speed_ups(GPU_MINUTES),
    ),
    # float32 on one V100, 2560 tokens a step: NVIDIA/DeepLearningExamples, PyTorch/Translation/Transformer, README at 0053b4b
    Setting(
        title="Transformer-big, V100, 6 a node",
        model="transformer_big",
        platform="gpu-nodes-2x100g",
        batch=2560,
        throughput=7635,
        serial=7635,
        published=_speed_ups(TRANSFORMER_MINUTES),
    ),
]


def step_of(setting: Setting) -> Step:
    """Gradients become ready from the last tensor to the first, at equal distances; buckets close at the fusion threshold."""
    compute = setting.batch / setting.throughput
    tensors = json.loads((ROOT / f"benchmarks/models/{setting.model}.json").read_text())["tensors"]
    sizes = [4 * math.prod(shape) for _, shape in reversed(tensors)]
    buckets: list[Bucket] = []
    filled = 0
    for index, size in enumerate(sizes):
        filled += size
        if filled >= FUSION_THRESHOLD or index == len(sizes) - 1:
            done = (index + 1) / len(sizes)
            buckets.append(Bucket(filled, compute * (FORWARD + (1 - FORWARD) * done)))
            filled = 0
    return Step(tuple(buckets), rest=0.0, ranks=1, measured=compute)


def times_of(setting: Setting, step: Step, ranks: Sequence[int], program: Path | None) -> Times:
    file = SHIPPED / f"{setting.platform}.xml"
    machine = read_machine(file)
    sizes = sorted({bucket.bytes for bucket in step.buckets})
    known = {n: simulator.all_reduce_seconds(program, file, n, sizes) for n in ranks if n > 1} if program else {}

    def times(n: int, size: int) -> tuple[float, str]:
        cost = model.all_reduce(machine, n, size)
        return (known[n][size] if n in known else cost.seconds), cost.limit

    return times


def table(setting: Setting, curve: Sequence[Prediction], serialized: Sequence[float], share: float) -> str:
    lines = [f"{setting.title} (simulated)", "", "| ranks | speed-up | efficiency | without overlap | exposed | predecessor |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for one, lower in zip(curve, serialized, strict=True):
        published = setting.published.get(one.ranks)
        lines.append(
            f"| {one.ranks} | {one.speed_up * share:.1f} | {one.efficiency:.1%} | {lower:.1%} | {one.exposed * 1e3:.1f} ms "
            f"| {'-' if published is None else f'{published:.1f}'} |"
        )
    return "\n".join(lines) + "\n"


def draw(curves: Sequence[tuple[Setting, Sequence[Prediction], float]], output: Path) -> None:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "scaling"  # the same file from the same numbers
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4.2), layout="constrained")
    for axis, (setting, curve, share) in zip(axes, curves, strict=True):
        ranks = [one.ranks for one in curve]
        axis.plot(ranks, [n * share for n in ranks], color="0.6", linestyle=":", label="linear")
        axis.plot(
            ranks,
            [one.speed_up * share for one in curve],
            color="#0072b2",
            marker="o",
            markersize=3,
            label="Tarantella, simulated",
        )
        axis.plot(
            [*setting.published],
            [*setting.published.values()],
            color="#d55e00",
            marker="s",
            markersize=3,
            label="predecessor, published",
        )
        axis.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speed-up over one device", title=setting.title)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulator", type=Path, help="tnt-simulated; default: the analytic model")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs/scaling.svg")
    given = parser.parse_args()
    curves = []
    for setting in SETTINGS:
        step = step_of(setting)
        ranks = sorted({*setting.published, 1024})
        times = times_of(setting, step, ranks, given.simulator)
        curve = predict(step, ranks, times, strong=False)
        all_times = [sum(times(n, bucket.bytes)[0] for bucket in step.buckets) for n in ranks]
        serialized = [step.compute / (step.compute + seconds) for seconds in all_times]
        share = setting.throughput / setting.serial
        curves.append((setting, curve, share))
        print(table(setting, curve, serialized, share))
    draw(curves, given.output)


if __name__ == "__main__":
    main()
