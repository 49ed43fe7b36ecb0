"""benchmarks/training/throughput.py: its arithmetic on made-up measurements, and one measurement of each kind of run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from support.checkouts import TOOLS

SCRIPT = TOOLS.parent / "benchmarks/training/throughput.py"


@pytest.fixture
def throughput(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("throughput")


def on_ranks(step: float, without: float, reduction: float) -> dict[str, float]:
    return {"step_ms": step, "step_ms_without_communication": without, "reducer_exposed_ms": reduction, "memory_mib": 700.0}


def found(throughput: ModuleType, **ranks: dict[str, float]) -> dict[str, dict[str, float]]:
    """One core takes 100 ms for the whole batch, and 60 ms for a half."""
    plain = {"memory_mib": 600.0}
    result = {throughput.ONE_CORE: {"step_ms": 100.0, **plain}, throughput.ALL_CORES: {"step_ms": 70.0, **plain}}
    result |= {throughput.of_part(2): {"step_ms": 60.0, **plain}, throughput.of_part(4): {"step_ms": 30.0, **plain}}
    return result | {throughput.of_ranks(int(name[1:])): numbers for name, numbers in ranks.items()}


def test_efficiency_counts_cores(throughput):
    numbers = found(throughput, r2=on_ranks(80.0, 70.0, 6.0), r4=on_ranks(100.0, 90.0, 6.0))
    one, _, two, four = throughput.rows(numbers, 64, [2, 4], 2)
    assert one.samples_per_second == pytest.approx(640)
    assert two.samples_per_second == pytest.approx(800)
    assert two.efficiency == pytest.approx(100 / (2 * 80))
    assert two.exposed_ms == pytest.approx(10)
    assert four.efficiency == pytest.approx(100 / (2 * 100))  # two cores, however many ranks


@pytest.mark.parametrize(("ranks", "part", "smaller", "shared"), [(2, 50, 10, 10), (4, 50, 10, 30)])
def test_costs_add_up_to_the_step(throughput, ranks, part, smaller, shared):
    """Four ranks on two cores take turns: each core computes two parts of 30 ms."""
    step, without = (80.0, 70.0) if ranks == 2 else (100.0, 90.0)
    cost = throughput.cost(found(throughput, **{f"r{ranks}": on_ranks(step, without, 6.0)}), ranks, 2)
    assert (cost.part_of_one_core, cost.smaller_batch, cost.shared_memory) == (part, smaller, shared)
    assert (cost.reduction, cost.others) == (6.0, 4.0)
    assert sum(value for key, value in vars(cost).items() if key != "ranks") == pytest.approx(step)


def test_medians_over_rounds(throughput):
    rounds = [{"run": {"step_ms": ms}} for ms in (3.0, 100.0, 5.0)]
    assert throughput.medians(rounds) == {"run": {"step_ms": 5.0}}


def start(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--model", "cnn", "--ranks", "3"], "--batch 64 cannot be divided by 3 ranks"),
        (["--model", "cnn", "--ranks", "1"], "'1': numbers of ranks from 2, as in 2,4"),
        (["--model", "cnn", "--steps", "4"], "the first 4 of a block are not measured"),
        (["--model", "lenet"], "invalid choice: 'lenet'"),
    ],
)
def test_bad_input_is_one_sentence(options, text):
    result = start(*options)
    assert result.returncode == 2
    assert text in result.stderr.splitlines()[-1]


@pytest.mark.long
def test_every_kind_of_run(tmp_path):
    result = start("--model", "mlp", "--rounds", "1", "--steps", "6", "--json", str(tmp_path / "x.json"))
    assert result.returncode == 0, result.stderr
    written: dict[str, Any] = json.loads((tmp_path / "x.json").read_text())
    rows = written["rows"]
    assert [row["name"] for row in rows] == ["plain Keras, 1 core", "plain Keras, all cores", "2 ranks"]
    assert all(row["samples_per_second"] > 0 and row["memory_mib"] > 100 for row in rows)
    assert "2 ranks" in result.stdout
    step = next(row["step_ms"] for row in rows if row["name"] == "2 ranks")
    assert sum(value for key, value in written["costs"][0].items() if key != "ranks") == pytest.approx(step)
