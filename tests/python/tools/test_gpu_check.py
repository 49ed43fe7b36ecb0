"""The verdict of gpu-check: a wrong result never passes, and neither does a part that did not run."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.checkouts import TOOLS


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("gpu_check.__main__")


def test_without_a_gpu_there_is_one_sentence(gpu_check: ModuleType, tmp_path: Path) -> None:
    try:
        gpu_check.find_gpu()
    except gpu_check.NoGpu as reason:
        done = subprocess.run(
            [TOOLS / "gpu-check", "bench"], capture_output=True, text=True, timeout=30, env={**os.environ, "OUT": str(tmp_path)}
        )
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gpu-check: there is no GPU to check: {reason}\n")
        assert not list(tmp_path.iterdir())
    else:
        pytest.skip("there is a GPU")


def test_a_part_that_does_not_exist_is_named() -> None:
    done = subprocess.run([TOOLS / "gpu-check", "bench", "benhc"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "there is no part benhc: there are build, unit," in done.stderr


GOOD = {"case": "pack/resnet50/float32/all", "percent_of_copy": 91.0, "launches": 1, "host_us": 3.0}


def with_parts(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, run_it: Callable[[str, Any], str]) -> None:
    gpu = type(gpu_check)("gpu")
    gpu.name, gpu.slug, gpu.architecture, gpu.driver, gpu.driver_cuda = "A GPU", "a-gpu", "90", "580.1", "13.0"
    monkeypatch.setattr(gpu_check, "find_gpu", lambda: gpu)
    names = ("build", "unit", "bench", "foreach")
    monkeypatch.setattr(gpu_check, "PARTS", {name: functools.partial(run_it, name) for name in names})
    monkeypatch.setattr(gpu_check.Check, "has_program", lambda _: False)
    monkeypatch.setattr(gpu_check, "summary", lambda *_: "")
    monkeypatch.setattr(gpu_check, "all_tables", lambda *_: "")
    run = importlib.import_module("gpu_check.run")
    for module in (run, gpu_check):
        monkeypatch.setattr(module, "LOGS", out / "log")
    monkeypatch.setenv("OUT", str(out))


def test_no_failure_hides_the_results_of_another_part(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_it(name: str, check: Any) -> str:
        if name in ("unit", "bench"):
            check.lines.append({**GOOD, "case": f"case of {name}"})
        if name == "unit":
            raise KeyError("a fault of gpu-check itself")
        if name == "foreach":
            raise KeyboardInterrupt  # as if somebody ended the command
        return "well"

    with_parts(gpu_check, monkeypatch, tmp_path, run_it)
    with pytest.raises(KeyboardInterrupt):
        gpu_check.main([])
    file = tmp_path / "gpu-a-gpu.json"
    result = json.loads(file.read_text())
    assert {part["part"]: part["result"] for part in result["parts"]} == {"build": "ok", "unit": "FAILED", "bench": "ok"}
    assert "KeyError" in result["parts"][1]["words"]
    assert [(line["part"], line["case"]) for line in result["measurements"]] == [
        ("unit", "case of unit"), ("bench", "case of bench")
    ]  # fmt: skip
    # a later command with other parts keeps them, and replaces its own
    with_parts(gpu_check, monkeypatch, tmp_path, lambda name, check: "better")
    assert gpu_check.main(["unit", "foreach"]) == 0
    result = json.loads(file.read_text())
    assert {part["part"]: part["words"] for part in result["parts"]} == {
        "build": "better", "unit": "better", "bench": "well", "foreach": "better"
    }  # fmt: skip
    assert [line["case"] for line in result["measurements"]] == ["case of bench"]


def test_a_bundle_has_what_the_build_needs(gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = importlib.import_module("gpu_check.bundle")
    folder = tmp_path / "bundle"
    assert bundle.make_bundle(folder) < bundle.LARGEST
    for header in bundle.HEADERS:
        assert (folder / "usr" / "include" / header).is_file()
    assert list(folder.rglob("libgtest.a")) and list(folder.rglob("fmt-config.cmake"))
    monkeypatch.setattr(bundle, "BUNDLE", folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMAKE_PREFIX_PATH", "own")
    assert bundle.prefixes() == [str(tmp_path / "own"), str(folder / "usr")]


@pytest.mark.parametrize(
    ("wrong", "failure", "code", "last"),
    [
        ({}, None, 0, "ok: failed: none; targets missed: 0 of 3; skipped: foreach"),
        ({"percent_of_copy": 84.9}, None, 1, "FAILED: failed: none; targets missed: 1 of 3; skipped: foreach"),
        ({"percent_of_copy": math.nan}, None, 1, "FAILED: failed: none; targets missed: 1 of 3; skipped: foreach"),
        ({"launches": 2, "host_us": 11.0}, None, 1, "FAILED: failed: none; targets missed: 2 of 3; skipped: foreach"),
        ({}, "unit", 1, "FAILED: failed: unit; targets missed: 0 of 3; skipped: foreach"),
        ({}, "build", 1, "FAILED: failed: build; targets missed: 0 of 0; skipped: unit, bench, foreach"),
    ],
)
def test_a_gpu_check_is_ok_if_nothing_failed_or_was_missed(
    gpu_check: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: dict[str, float],
    failure: str | None,
    code: int,
    last: str,
) -> None:
    def run_it(name: str, check: Any) -> str:
        if name == failure:
            raise gpu_check.Failed("it is broken")
        if name == "foreach":
            raise gpu_check.Skipped("no PyTorch")
        if name == "bench":
            check.lines += [{**GOOD}, GOOD | wrong]
        return "well"

    with_parts(gpu_check, monkeypatch, tmp_path, run_it)
    assert gpu_check.main([]) == code
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith(f"gpu-check: {last}; "), out
    result = json.loads((tmp_path / "gpu-a-gpu.json").read_text())
    assert [part["part"] for part in result["parts"]] == ["build", "unit", "bench", "foreach"]
    assert result["machine"]["device"] == "A GPU"


def test_ranks_of_a_check_end_together(gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = importlib.import_module("gpu_check.run")
    monkeypatch.setattr(run, "LOGS", tmp_path)
    script = "import os, sys, time; r, n = (os.environ[f'TNT_{name}'] for name in ('RANK', 'SIZE')); "
    script += "print('rank', r, n, os.environ['X'])"
    said = run.job("good", 2, [sys.executable, "-c", script], 20, lambda rank: {"X": str(rank)})
    assert said.split() == ["rank", "0", "2", "0"]
    bad = f"{script}; sys.exit('it broke') if r == '1' else time.sleep(60)"
    with pytest.raises(run.Failed, match=r"rank 1 of 2: .* ended with code 1(.|\n)*it broke"):
        run.job("bad", 2, [sys.executable, "-c", bad], 20, lambda rank: {"X": "x"})
    with pytest.raises(run.Failed, match="was not done after 1 s"):
        run.call("slow", [sys.executable, "-c", "import time; time.sleep(60)"], 1)


def test_losses_of_several_ranks_are_those_of_one(gpu_check: ModuleType) -> None:
    ranks = importlib.import_module("gpu_check.several_ranks")
    serial = ranks.losses("2 ranks, transport shm\nepoch 1 loss 1.500000\nepoch 2 loss 0.750000\nsum of absolute weights 9.1\n")
    assert serial == [1.5, 0.75]
    assert ranks.compare_losses(2, [1.500002, 0.75], serial)["largest_difference"] < 3e-6
    for wrong in ([1.5, 0.7501], [1.5, math.nan], [1.5], []):
        with pytest.raises(ranks.Failed):
            ranks.compare_losses(2, wrong, serial)


class Ranks:
    """Stands in for the programs of `several_ranks`: what they say, and which of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, failing: dict[str, str]) -> None:
        self.module, self.failing, self.started, self.lines = module, failing, [], []
        monkeypatch.setattr(module, "call", lambda *_: "epoch 1 loss 1.5\n")
        monkeypatch.setattr(module, "job", self.job)
        monkeypatch.setattr(module.shutil, "which", lambda _: None)  # no MPS

    def job(self, name: str, ranks: int, command: Any, seconds: float, env_of: Any) -> str:
        way = "shared" if "NCCL_MULTI_RANK_GPU_ENABLE" in env_of(0) else "lo"
        self.started.append((name, ranks, way))
        if self.failing.get(name) in (way, "always"):
            raise self.module.Failed(f"{name} was not done after 45 s")
        return "epoch 1 loss 1.5\n" if name == "trainer" else '{"case": "machine"}\n' + json.dumps({"case": f"{name}/2 ranks"})

    def check(self, version: tuple[int, int, int]) -> str:
        nccl = importlib.import_module("gpu_check.machine").Nccl("libnccl.so.2", version)
        clock = importlib.import_module("gpu_check.run").Clock()
        programs = self.module.Programs(Path("trainer"), Path("bench"), {}, clock, self.lines.extend)
        return str(self.module.check_ranks(nccl, programs))


def test_a_case_that_is_slow_hides_no_other(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("gpu_check.several_ranks")
    ranks = Ranks(monkeypatch, module, {"abort": "always"})
    with pytest.raises(module.Failed, match=r"by NCCL_HOSTID over lo:\nabort: abort was not done"):
        ranks.check((2, 28, 9))
    cases = [line["case"] for line in ranks.lines]
    assert cases == ["trainer/2 ranks", "capture/2 ranks", "all-reduce/2 ranks", "reducer/2 ranks"]
    assert all(line["time_sliced"] and line["way"] == "NCCL_HOSTID over lo" for line in ranks.lines)
    assert {n for _, n, _ in ranks.started} == {2}


def test_the_other_way_is_tried_if_ranks_do_not_train(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(monkeypatch, importlib.import_module("gpu_check.several_ranks"), {"trainer": "shared"})
    said = ranks.check((2, 30, 3))
    assert said.startswith("by NCCL_HOSTID over lo; not by NCCL_MULTI_RANK_GPU_ENABLE: trainer was not done"), said
    assert len(ranks.lines) == 5


def test_a_server_that_keeps_its_output_open_is_not_waited_for(gpu_check: ModuleType, tmp_path: Path) -> None:
    """As the MPS server does: a pipe to it would end with it."""
    module = importlib.import_module("gpu_check.several_ranks")
    program = tmp_path / "control"
    program.write_text("#!/bin/sh\nsleep 60 &\necho $! >" + str(tmp_path / "pid") + "\n")
    program.chmod(0o755)
    begin = time.monotonic()
    assert module.tell(str(program), ["-d"], {})
    assert time.monotonic() - begin < 15
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_results_are_written_while_a_part_runs(gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the logs are packed beside them."""
    run = importlib.import_module("gpu_check.run")
    seen: list[Any] = []

    def run_it(name: str, check: Any) -> str:
        run.call(name, [sys.executable, "-c", f"print('{name} says this')"], 20)
        if name == "unit":
            check.add([GOOD])
            seen.append(json.loads((tmp_path / "gpu-a-gpu.json").read_text()))
        return "well"

    with_parts(gpu_check, monkeypatch, tmp_path, run_it)
    assert gpu_check.main([]) == 0
    assert [line["case"] for line in seen[0]["measurements"]] == [GOOD["case"]] and seen[0]["measurements"][0]["part"] == "unit"
    with tarfile.open(tmp_path / "gpu-a-gpu.logs.tar.gz") as archive:
        names = set(archive.getnames())
        assert b"bench says this" in archive.extractfile("log/bench.log").read()  # type: ignore[union-attr]
    assert {"log/build.log", "log/unit.log", "log/tables.txt"} <= names


def test_two_commands_have_all_parts(gpu_check: ModuleType) -> None:
    parts = importlib.import_module("gpu_check.parts")
    chosen = [gpu_check.read_options([name]).parts for name in ("first", "second")]
    assert chosen[0] == ["build", "unit", "bench", "nccl", "foreach"]
    assert sorted({*chosen[0], *chosen[1]}) == sorted(parts.PARTS) == sorted(parts.MINUTES)
    first, second = (sum(parts.MINUTES[part] for part in command) for command in chosen)
    assert first < 9 and second - parts.MINUTES["build"] < 9  # the second finds the programs built


def test_the_last_words_are_short(gpu_check: ModuleType) -> None:
    report = importlib.import_module("gpu_check.report")
    targets = importlib.import_module("gpu_check.targets")
    bucket = {"bytes": 1 << 20, "us": 3.0, "gb_per_s": 800.0, "percent_of_copy": 84.0, "launches": 1, "host_us": 4.0}
    lines = [{**bucket, "case": f"pack/resnet50/{kind}/{size}"} for kind in ("float32", "bfloat16") for size in ("all", "1MiB")]
    lines += [{"case": f"all_reduce/{4 << i}/1 ranks", "us": float(i)} for i in range(80)]
    lines += [{"case": f"cores/{name}/{size}/{n} ranks", "bytes": size, "us": 2.0}
              for name in ("gloo", "shm", "mpi") for size in (4, 1024) for n in (2, 16)]  # fmt: skip
    parts = [{"part": "unit", "result": "FAILED", "seconds": 9.0, "words": "broken\n" + "more\n" * 90}]
    parts += [{"part": f"part {i}", "result": "ok", "seconds": 1.0, "words": "x" * 999} for i in range(8)]
    text = report.summary(lines, parts, targets.judge(lines)).splitlines()
    assert len(text) <= report.MOST_LINES and max(map(len, text)) <= report.WIDTH
    shown = "\n".join(text)
    for part in (
        "unit: broken",
        "MISSED",
        "pack/resnet50/float32/all",
        "shm, 2  gloo, 2  mpi, 2",
        "all_reduce/4/1 ranks",
        "more in the",
    ):
        assert part in shown, shown
    everything = report.all_tables(lines, targets.judge(lines))
    assert all(line["case"] in everything for line in lines if not line["case"].startswith("cores/"))


def test_a_toolkit_that_is_not_in_path_is_found(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = importlib.import_module("gpu_check.machine")
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "TOOLKIT", str(tmp_path / "cuda"))
    assert machine.find_tool("nvcc") is None
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.touch(0o755)
    assert machine.find_tool("nvcc") == str(nvcc)


def test_a_program_that_cannot_be_built_hides_no_other(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = importlib.import_module("gpu_check.parts")
    has_program = gpu_check.Check.has_program

    def run_it(name: str, check: Any) -> str:
        if name == "build":
            raise gpu_check.Failed("tnt_gpu_tests cannot be compiled")
        check.program({"unit": "tests", "bench": "bench", "foreach": "bench"}[name])
        return "well"

    with_parts(gpu_check, monkeypatch, tmp_path, run_it)
    monkeypatch.setattr(gpu_check.Check, "has_program", has_program)
    monkeypatch.setattr(parts.prebuilt, "program", lambda name, _: tmp_path / name)
    (tmp_path / "bench").touch()
    assert gpu_check.main([]) == 1
    result = json.loads((tmp_path / "gpu-a-gpu.json").read_text())
    assert [(part["part"], part["result"], part["words"]) for part in result["parts"]] == [
        ("build", "FAILED", "tnt_gpu_tests cannot be compiled"), ("unit", "skipped", "tests was not built"),
        ("bench", "ok", "well"), ("foreach", "ok", "well"),
    ]  # fmt: skip


BENCH_ROW = {"collective": "all_reduce", "backend": "shm", "ranks": 2, "bytes": 4, "time_us_p50": 1.0, "time_us_p95": 2.0}
AGAINST = {"against": "mpi", "against_time_us_p50": 3.0, "against_time_us_p95": 4.0}


def test_ranks_on_the_cores_of_a_machine(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that fails, or a wrong sum, hides no other's times."""
    cores = importlib.import_module("gpu_check.cores")
    run = importlib.import_module("gpu_check.run")
    checks = {2: "ok", 4: "3 wrong"}

    def call(name: str, command: Any, seconds: float, env: Any = None) -> str:
        ranks = command[command.index("--ranks") + 1]
        if "--against" not in command:
            return json.dumps({**BENCH_ROW, "ranks": ranks, "check": checks[ranks]})
        if ranks == 4:
            raise run.Failed("no MPI")
        return json.dumps({**BENCH_ROW, "ranks": ranks, "check": "ok", **AGAINST})

    monkeypatch.setattr(cores, "call", call)
    monkeypatch.setattr(cores, "mpi_env", dict)
    monkeypatch.setattr(
        cores, "job", lambda name, ranks, *_: json.dumps({"case": f"cores/gloo/4/{ranks} ranks", "bytes": 4, "us": 9.0})
    )
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(4)))
    lines: list[Any] = []
    with pytest.raises(run.Failed, match=r"tnt-bench on 4 ranks: wrong sums of 4 bytes \(3 wrong\)"):
        cores.check_cores(Path("tnt-bench"), run.Clock(), lines.extend, True)
    header = ("us of all_reduce, bytes", "shm, 2", "gloo, 2", "mpi, 2", "gloo, 4")
    assert cores.core_rows(lines) == [header, ("4", "1", "9", "3", "9")]
    assert [cores.ranks_of(n) for n in (1, 2, 8, 16, 64)] == [[2], [2], [2, 4, 8], [2, 4, 8, 16], [2, 4, 8, 16]]


def test_the_cores_of_this_machine(gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the tnt-bench of the package, on two ranks."""
    cores = importlib.import_module("gpu_check.cores")
    run = importlib.import_module("gpu_check.run")
    monkeypatch.setattr(run, "LOGS", tmp_path)
    for name, value in (("SECONDS", 0.01), ("SIZES", (4, 4096)), ("ranks_of", lambda _: [2]), ("mpi_env", lambda: None)):
        monkeypatch.setattr(cores, name, value)
    lines: list[Any] = []
    said = cores.check_cores(Path(sys.executable).with_name("tnt-bench"), run.Clock(), lines.extend, False)
    assert said.endswith(" cores: shm")
    assert [line["case"] for line in lines] == ["cores/shm/4/2 ranks", "cores/shm/4096/2 ranks"]
    assert all(line["us"] > 0 and line["check"] == "ok" for line in lines)


def test_gradients_of_torch_are_compared_with_ddp(
    gpu_check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrong gradient fails; that two ranks cannot share the GPU hides nothing."""
    parts = importlib.import_module("gpu_check.parts")
    machine = importlib.import_module("gpu_check.machine")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "libtarantella.so.0.1").touch()
    monkeypatch.setattr(parts.Check, "program", lambda *_: tmp_path / "benchmarks" / "gpu" / "tnt_gpu_bench")
    monkeypatch.setattr(parts, "torch_version", lambda _: "2.11 True")
    environments: list[Any] = []
    differences = [1e-6]

    def call(name: str, command: Any, seconds: float, env: Any) -> str:
        environments.append(env)
        return json.dumps({"case": "torch/resnet/1 ranks", "largest_difference": differences[-1]})

    def job(name: str, ranks: int, command: Any, seconds: float, env_of: Any) -> str:
        environments.append(env_of(1))
        raise parts.Failed("rank 1 of 2: Duplicate GPU detected")

    monkeypatch.setattr(parts, "call", call)
    monkeypatch.setattr(parts, "job", job)
    check = parts.Check(None, machine.Nccl("/lib/libnccl.so.2", (2, 28, 9)), parts.Clock())
    said = parts.torch(check)
    assert said == "PyTorch 2.11; 2 ranks not by NCCL_HOSTID over lo: rank 1 of 2: Duplicate GPU detected"
    assert [line["case"] for line in check.lines] == ["torch/resnet/1 ranks"]
    assert all(env["TARANTELLA_LIBRARY"].endswith("libtarantella.so.0.1") for env in environments)
    assert environments[1]["NCCL_HOSTID"] == "gpu-check-1" and environments[0]["TNT_NCCL_LIBRARY"] == "/lib/libnccl.so.2"
    for wrong in (0.01, math.nan):
        differences.append(wrong)
        with pytest.raises(parts.Failed, match="a gradient differs from DDP's by"):
            parts.torch(check)
