"""The verdict of gpu-check: a wrong result never passes, and neither does a part that did not run."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
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
    def part(name: str) -> Any:
        def run_it(check: Any) -> str:
            if name == failure:
                raise gpu_check.Failed("it is broken")
            if name == "foreach":
                raise gpu_check.Skipped("no PyTorch")
            if name == "bench":
                check.lines += [GOOD, GOOD | wrong]
            return "well"

        return run_it

    gpu = type(gpu_check)("gpu")
    gpu.name, gpu.slug, gpu.architecture, gpu.driver, gpu.driver_cuda = "A GPU", "a-gpu", "90", "580.1", "13.0"
    monkeypatch.setattr(gpu_check, "find_gpu", lambda: gpu)
    monkeypatch.setattr(gpu_check, "PARTS", {name: part(name) for name in ("build", "unit", "bench", "foreach")})
    monkeypatch.setattr(gpu_check, "buckets_table", lambda lines: "")
    monkeypatch.setenv("OUT", str(tmp_path))
    assert gpu_check.main([]) == code
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith(f"gpu-check: {last}; "), out
    result = json.loads((tmp_path / "gpu-a-gpu.json").read_text())
    assert [part["part"] for part in result["parts"]] == ["build", "unit", "bench", "foreach"]
    assert result["machine"]["device"] == "A GPU"


def test_ranks_of_a_check_end_together(gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = importlib.import_module("gpu_check.run")
    monkeypatch.setattr(run, "LOGS", tmp_path)
    script = "import os, sys, time; r, n = (os.environ[f'TNT_INTERNAL_{name}'] for name in ('RANK', 'SIZE')); "
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
