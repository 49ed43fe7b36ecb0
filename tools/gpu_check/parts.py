"""The parts of a check. Each returns a short result, or raises Skipped or Failed with a reason."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field

from gpu_check import build as building
from gpu_check.build import BENCH, TESTS
from gpu_check.machine import Gpu, Nccl, find_tool
from gpu_check.run import ROOT, Clock, Failed, Line, Skipped, call, json_lines
from gpu_check.several_ranks import check_ranks

MODELS = ("resnet50", "transformer_big", "bert_large")
FOREACH = ROOT / "tools" / "gpu_check" / "foreach.py"
# Short, because an access takes a hundred times as long: every wire type, every alignment, statistics with shared memory.
SANITIZED = {
    "memcheck": "*OfRandomTensors*:Pack.Reads*:Pack.Keeps*:Pack.OfNothing*:*GpuReduce.EqualsTheHost/2:Statistics.*",
    "racecheck": "Statistics.*:*OfRandomTensors*/float32:*GpuReduce.MayWriteOverASource/2",
}
UNABLE = re.compile(
    r"device not supported|not supported on this|unable to find injection|debugger.*not.*(?:allow|permit)", re.IGNORECASE
)


@dataclass
class Check:
    """The machine, and the results so far."""

    gpu: Gpu
    nccl: Nccl | None
    clock: Clock
    lines: list[Line] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        return {"TNT_NCCL_LIBRARY": self.nccl.file} if self.nccl and "/" in self.nccl.file else {}

    def needs_nccl(self) -> Nccl:
        if self.nccl is None:
            raise Skipped("no NCCL was found: install libnccl2 or nvidia-nccl-cu13, or name the file in TNT_NCCL_LIBRARY")
        return self.nccl

    def measure(self, name: str, *words: object, seconds: float = 90) -> None:
        self.lines += json_lines(call(name, [BENCH, *words], self.clock.limit(seconds), self.env))


def build(check: Check) -> str:
    return building.build(check.gpu, check.clock)


def unit(check: Check) -> str:
    said = call("unit", [TESTS], check.clock.limit(150), check.env)
    passed = re.search(r"\[  PASSED  \] (\d+) tests?", said)
    if passed is None or int(passed[1]) == 0:
        raise Failed("no test was run")
    skipped = re.search(r"\[  SKIPPED \] (\d+) tests?", said)
    return f"{passed[1]} tests passed{f', {skipped[1]} skipped' if skipped else ''}"


def sanitizer(check: Check) -> str:
    program = find_tool("compute-sanitizer")
    if program is None:
        raise Skipped("there is no compute-sanitizer in PATH or beside nvcc")
    for tool, tests in SANITIZED.items():
        command = [program, "--tool", tool, "--error-exitcode", 9, TESTS, f"--gtest_filter={tests}"]
        try:
            said = call(f"sanitizer-{tool}", command, check.clock.limit(100), {"TESTS_WITHOUT_GUARDS": "1"})
        except Failed as failure:
            if UNABLE.search(str(failure)):
                raise Skipped(f"{tool} does not work on this machine:\n{failure}") from None
            raise Failed(f"{tool}: {failure}") from None
        if "ERROR SUMMARY: 0 errors" not in said and "RACECHECK SUMMARY: 0 hazards" not in said:
            raise Failed(f"{tool} did not say that it found nothing: {said[-400:]}")
    return " and ".join(SANITIZED)


def bench(check: Check) -> str:
    for model in MODELS:
        check.measure(f"bench-{model}", "buckets", "--model", model)
    return f"{sum('percent_of_copy' in line for line in check.lines)} cases"


def nccl(check: Check) -> str:
    found = check.needs_nccl()
    check.measure("reducer", "reducer", "--model", *MODELS)
    check.measure("all-reduce", "all_reduce")
    check.measure("overlap", "overlap")
    return f"NCCL {found.text}"


def ranks(check: Check) -> str:
    found = check.needs_nccl()
    how, lines = check_ranks(found, check.clock, check.env)
    check.lines += lines
    return how


def foreach(check: Check) -> str:
    try:
        version = call("torch", [sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], 60)
    except Failed:
        raise Skipped(f"{sys.executable} has no PyTorch: name another Python in PYTHON") from None
    if "True" not in version:
        raise Skipped(f"PyTorch {version.split()[0]} sees no GPU")
    model = ROOT / "benchmarks" / "models" / "resnet50.json"
    theirs = json_lines(call("foreach", [sys.executable, FOREACH, model, 0.5], check.clock.limit(60)))
    if not any(line["case"] == "pack/resnet50/float32/all" for line in check.lines):
        check.measure("bench-resnet50", "buckets", "--model", "resnet50")
    for line in theirs:
        ours = next(own for own in check.lines if own["case"] == line["case"].removeprefix("foreach/"))
        line["ratio_to_foreach"] = line["us"] / ours["caller_us"]
    check.lines += theirs
    return f"PyTorch {version.split()[0]}"


PARTS = {"build": build, "unit": unit, "sanitizer": sanitizer, "bench": bench, "nccl": nccl, "ranks": ranks, "foreach": foreach}
