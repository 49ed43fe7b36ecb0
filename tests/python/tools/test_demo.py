"""The verdict of the demo: a wrong result never passes."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from support.checkouts import TOOLS


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_runs", TOOLS / "demo_runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(TOOLS))  # as Python does for a script
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def run(demo: ModuleType, ranks: int = 2, difference: float = 1e-6, **results: float) -> Any:
    good = {"accuracy": 0.98, "bytes": 100.0, "busy_seconds": 2.0, "exposed_seconds": 0.5}
    return demo.Run("a run", ranks, good | results, difference)


def test_good_runs_pass(demo: ModuleType) -> None:
    assert demo.check([run(demo, ranks=0, difference=0.0), run(demo)]) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"difference": 2e-4}, "weights differ"),
        ({"difference": math.nan}, "weights differ"),
        ({"accuracy": 0.94}, "accuracy is 0.9400"),
        ({"accuracy": math.nan}, "accuracy is nan"),
        ({"bytes": 0.0}, "nothing was reduced"),
    ],
)
def test_a_bad_run_is_named(demo: ModuleType, wrong: dict[str, float], sentence: str) -> None:
    (line,) = demo.check([run(demo), run(demo, **wrong)])
    assert line.startswith("a run: ") and sentence in line


@pytest.mark.parametrize(("busy", "exposed", "percent"), [(2.0, 0.5, 75.0), (2.0, 2.5, 0.0), (2.0, -0.1, 100.0)])
def test_the_hidden_share_is_a_percentage(demo: ModuleType, busy: float, exposed: float, percent: float) -> None:
    assert run(demo, busy_seconds=busy, exposed_seconds=exposed).hidden == percent


def test_weights_that_are_not_numbers_differ(demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    np.savez(tmp_path / "good.npz", np.zeros(3), np.ones(2))
    np.savez(tmp_path / "bad.npz", np.zeros(3), np.array([1.0, np.nan]))
    assert math.isnan(demo.compare(demo.Run("bad", 2), demo.Run("good", 0)))


def test_a_run_that_fails_fails_the_demo(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('no data')")
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    monkeypatch.setattr(demo, "SCRIPT", script)
    monkeypatch.setattr(demo, "BIN", Path(sys.executable).parent)
    (tmp_path / "serial.json").write_text(json.dumps({"accuracy": 1.0}))  # an earlier demo's
    assert demo.main() == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "demo: failed max_weight_diff=nan accuracy=nan hidden=nan"
    assert "no data" in err
