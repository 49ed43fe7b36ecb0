"""The verdict of gpu-check: a wrong result never passes, and neither does a part that did not run."""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import subprocess
import sys
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
    monkeypatch.setattr(gpu_check, "buckets_table", lambda lines: "")
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
