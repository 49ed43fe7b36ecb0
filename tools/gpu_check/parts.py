"""The parts of a check. Each returns a short result, or raises Skipped or Failed with a reason."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_check import build as building
from gpu_check import prebuilt
from gpu_check.cores import check_cores
from gpu_check.domains import check_domains
from gpu_check.machine import Gpu, Nccl, find_tool
from gpu_check.run import ROOT, Clock, Failed, Line, Skipped, call, job, json_lines
from gpu_check.several_ranks import RANKS, Programs, check_ranks, ways_of

MODELS = ("resnet50", "transformer_big", "bert_large")
FOREACH = ROOT / "tools" / "gpu_check" / "foreach.py"
TORCH_TRAINER = ROOT / "examples" / "torch_trainer" / "torch_trainer.py"
LARGEST_DIFFERENCE = 1e-3  # of a gradient: convolutions do not give the same bits twice
# Short, because an access takes a hundred times as long: every wire type, every alignment, statistics with shared memory.
SANITIZED = {
    "memcheck": "*OfRandomTensors*:Pack.Reads*:Pack.Keeps*:Pack.OfNothing*:*GpuReduce.EqualsTheHost/2:*Statistics*/0:*Lean*:"
    "Accumulate.*:*Float8.Buckets*",
    "racecheck": "*Statistics*/0:*OfRandomTensors*/float32:*GpuReduce.MayWriteOverASource/2:*Lean*",
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
    keep: Callable[[], None] = lambda: None  # writes what is known so far
    part: str = ""  # that runs

    def add(self, lines: list[Line]) -> None:
        """More results, which are written at once: the machine may be taken away in the middle of a part."""
        self.lines += [{**line, "part": self.part} for line in lines]
        self.keep()

    def program(self, name: str) -> Path:
        """One of those of the build, or that came along (prebuilt.PLACES)."""
        file = prebuilt.program(name, self.gpu)
        if not file.is_file():
            raise Skipped(f"{file.name} was not built")
        return file

    def has_program(self) -> bool:
        """Whether there is something to run, though perhaps not all could be built."""
        return any(prebuilt.program(name, self.gpu).is_file() for name in prebuilt.PLACES)

    @property
    def env(self) -> dict[str, str]:
        return {"TNT_NCCL_LIBRARY": self.nccl.file} if self.nccl and "/" in self.nccl.file else {}

    def needs_nccl(self) -> Nccl:
        if self.nccl is None:
            raise Skipped("no NCCL was found: install libnccl2 or nvidia-nccl-cu13, or name the file in TNT_NCCL_LIBRARY")
        return self.nccl

    def measure(self, name: str, *words: object, seconds: float = 90) -> None:
        self.add(json_lines(call(name, [self.program("bench"), *words], self.clock.limit(seconds), self.env)))


def build(check: Check) -> str:
    return building.build(check.gpu, check.clock)


def unit(check: Check) -> str:
    said = call("unit", [check.program("tests")], check.clock.limit(150), check.env)
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
        command = [program, "--tool", tool, "--error-exitcode", 9, check.program("tests"), f"--gtest_filter={tests}"]
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
    programs = Programs(check.program("trainer"), check.program("bench"), check.env, check.clock, check.add)
    return check_ranks(found, programs)


def needs_torch(check: Check) -> str:
    """The version of PyTorch, which sees the GPU."""
    version = torch_version(check)
    if version is None:
        raise Skipped(f"{sys.executable} has no PyTorch: name another Python in PYTHON")
    if "True" not in version:
        raise Skipped(f"PyTorch {version.split()[0]} sees no GPU")
    return version.split()[0]


def torch_version(check: Check) -> str | None:
    words = [sys.executable, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"]
    try:
        return call("torch", words, check.clock.limit(60))
    except Failed:
        return None


def foreach(check: Check) -> str:
    version = needs_torch(check)
    model = ROOT / "benchmarks" / "models" / "resnet50.json"
    theirs = json_lines(call("foreach", [sys.executable, FOREACH, model, 0.5], check.clock.limit(60)))
    if not any(line["case"] == "pack/resnet50/float32/all" for line in check.lines):
        check.measure("bench-resnet50", "buckets", "--model", "resnet50")
    for line in theirs:
        ours = next(own for own in check.lines if own["case"] == line["case"].removeprefix("foreach/"))
        line["ratio_to_foreach"] = line["us"] / ours["caller_us"]
    check.add(theirs)
    return f"PyTorch {version}"


def torch(check: Check) -> str:
    """A backward pass that is real, beside PyTorch's DDP: on one rank, and on two where NCCL connects them on one GPU."""
    found = check.needs_nccl()
    version = needs_torch(check)
    library = check.program("bench").parents[2] / "src"
    env = {**check.env, "TARANTELLA_LIBRARY": str(next(library.glob("libtarantella.so.*")))}
    words = [sys.executable, TORCH_TRAINER, "--large", "--ddp"]
    check.add(judged(json_lines(call("torch-1", [*words, "--batch", 32], check.clock.limit(100), env))))
    slow = [*words, "--models", "gpt", "--batch", 4, "--steps", 3]
    said = []
    for way in ways_of(found):

        def env_of(rank: int, way_env: Callable[[int], Mapping[str, str]] = way.env_of) -> Mapping[str, str]:
            return {**env, **way_env(rank)}

        try:
            lines = json_lines(job(f"torch-{RANKS}", RANKS, slow, check.clock.limit(80), env_of))
        except (Failed, Skipped) as failure:
            said.append(f"{RANKS} ranks not by {way.name}: {str(failure).splitlines()[0]}")
            continue
        check.add(judged([{**line, "way": way.name, "time_sliced": True} for line in lines]))
        said.append(f"{RANKS} ranks by {way.name}")
        break
    return f"PyTorch {version}; {'; '.join(said)}"


def judged(lines: list[Line]) -> list[Line]:
    """The lines of torch_trainer, whose gradients have to be DDP's."""
    if not lines:
        raise Failed("torch_trainer measured nothing")
    for line in lines:
        if not line["largest_difference"] <= LARGEST_DIFFERENCE:
            raise Failed(f"{line['case']}: a gradient differs from DDP's by {line['largest_difference']:.2g} of the largest")
    return lines


def cores(check: Check) -> str:
    return check_cores(check.program("tnt-bench"), check.clock, check.add, torch_version(check) is not None)


def domains(check: Check) -> str:
    return check_domains(check.program("tnt-bench"), check.clock, check.add)


PARTS: dict[str, Callable[[Check], str]] = {
    "build": build, "unit": unit, "bench": bench, "nccl": nccl, "foreach": foreach,
    "sanitizer": sanitizer, "ranks": ranks, "torch": torch, "cores": cores, "domains": domains,
}  # fmt: skip
COMMANDS = {
    "first": ("build", "unit", "bench", "nccl", "foreach"),
    "second": ("build", "sanitizer", "ranks", "torch", "cores", "domains"),
}
MINUTES = {  # estimated, on 16 cores; build: when nothing came along
    "build": 2.0, "unit": 1.0, "bench": 1.0, "nccl": 1.0, "foreach": 0.5,
    "sanitizer": 2.5, "ranks": 2.0, "torch": 1.5, "cores": 1.0, "domains": 0.8,
}  # fmt: skip
