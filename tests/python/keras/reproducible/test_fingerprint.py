"""`TNT_FINGERPRINT`: its lines, against hashes of what NumPy computes and of the weights that the model has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.launch import RANKS, run_alone, run_ranks

BATCH, BATCHES, RATE = 8, 3, 0.125
VARIANTS = ("plain", "executions", "compiled", "accumulating", "single_steps", "rows")
Line = dict[str, Any]


def lines_of(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Told:
    """What a job of several trainings has told, and what weights it had in the end."""

    def __init__(self, ranks: int, variants: tuple[str, ...], folder: Path) -> None:
        path = folder / f"{ranks}.jsonl"
        path.write_text("of an earlier job\n")
        env = {"TNT_FINGERPRINT": str(path)}
        self.result = run_ranks(ranks, RANKS / "keras/reproducible/fingerprint.py", *variants, timeout=180, env=env).good()
        self.weights: dict[str, list[str]] = json.loads(self.result.stdout.splitlines()[-1])
        self.run, *lines = lines_of(path)
        self.lines = {name: [line for line in lines if line["training"] == i] for i, name in enumerate(variants)}

    def of(self, variant: str, kind: str) -> list[Line]:
        return [line for line in self.lines[variant] if line["kind"] == kind]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return Told(2, VARIANTS, tmp_path_factory.mktemp("told"))


def text(array: np.ndarray) -> str:
    import tensorflow as tf

    return f"{int.from_bytes(tf.fingerprint(array.reshape(1, -1)).numpy()[0].tobytes(), 'little'):016x}"


def expected() -> list[tuple[list[str], list[str]]]:
    """Gradients and weights of each step, in arithmetic that is exact in float32 while the numbers are short."""
    random = np.random.default_rng(0)
    x = random.integers(-2, 3, (BATCH * BATCHES, 3)).astype(np.float64)
    y = random.integers(-2, 3, (BATCH * BATCHES, 1)).astype(np.float64)
    kernel, bias, steps = np.zeros((3, 1)), np.zeros(1), []
    for step in range(BATCHES):
        batch = slice(step * BATCH, (step + 1) * BATCH)
        error = x[batch] @ kernel + bias - y[batch]
        gradients = [2 / BATCH * x[batch].T @ error, 2 / BATCH * error.sum(0)]
        kernel, bias = kernel - RATE * gradients[0], bias - RATE * gradients[1]
        assert all((array.astype(np.float32) == array).all() for array in (*gradients, kernel, bias))
        steps.append(tuple([text(array.astype(np.float32)) for array in arrays] for arrays in (gradients, [kernel, bias])))
    return steps


def test_the_file_begins_with_what_ran(told):
    assert (told.run["kind"], told.run["ranks"], told.run["threads"]) == ("run", 2, 1)
    assert set(told.run["versions"]) == {"tarantella", "tensorflow", "keras"}
    (training,) = told.of("plain", "training")
    assert [v["name"].rpartition("/")[2] for v in training["variables"]] == ["kernel", "bias"]
    assert [v["bucket"] for v in training["variables"]] == [0, 0]
    assert told.lines["plain"][0] is training
    assert training["initial"] == [text(np.zeros(3, np.float32)), text(np.zeros(1, np.float32))]


@pytest.mark.parametrize("variant", ["plain", "single_steps", "compiled"])
def test_gradients_and_weights_of_each_step(told, variant):
    steps = told.of(variant, "step")
    assert [(line["gradients"], line["weights"]) for line in steps[:BATCHES]] == expected()


def test_steps_are_numbered(told):
    assert [(line["epoch"], line["step"]) for line in told.of("plain", "step")] == [(e, s) for e in (0, 1) for s in range(3)]
    assert [(line["epoch"], line["step"]) for line in told.of("single_steps", "step")] == [(None, s) for s in range(3)]


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "single_steps"])
def test_the_last_epoch_has_the_weights_that_the_model_has(told, variant):
    assert told.of(variant, "epoch")[-1]["weights"] == told.weights[variant]


def test_epochs_tell_exact_logs_and_the_optimizers_state(told):
    (training,) = told.of("plain", "training")
    for line in told.of("plain", "epoch"):
        assert len(line["optimizer"]) == len(training["optimizer"]) > 0
        assert float.fromhex(line["logs"]["loss"]) == np.float32(float.fromhex(line["logs"]["loss"]))
    first, second = told.of("plain", "epoch")
    assert first["optimizer"] != second["optimizer"]  # it counts steps


def test_a_line_for_each_execution_of_several_steps(told):
    steps = told.of("executions", "step")
    assert len(steps) == 4
    assert (steps[0]["gradients"], steps[0]["weights"]) == expected()[1]
    assert steps[1]["weights"] == expected()[2][1]


def test_no_gradient_where_none_was_reduced(told):
    gradients = [line["gradients"] for line in told.of("accumulating", "step")]
    assert [found is None for found in gradients] == [True, False] * 3


def test_rows_of_a_table_have_a_hash(told):
    assert all(None not in line["gradients"] for line in told.of("rows", "step"))
    assert len({line["gradients"][0] for line in told.of("rows", "step")}) == BATCHES


def test_one_rank_tells_of_weights(tmp_path):
    one = Told(1, ("plain", "single_steps"), tmp_path)
    for variant in ("plain", "single_steps"):
        steps = one.of(variant, "step")[:BATCHES]
        assert [line["weights"] for line in steps] == [weights for _, weights in expected()]
    assert one.of("plain", "epoch")[-1]["weights"] == one.weights["plain"]


def test_a_restarted_job_goes_on_in_the_same_file(tmp_path):
    path = tmp_path / "told"
    path.write_text('{"kind": "run", "half')
    env = {"TNT_FINGERPRINT": str(path), "TNT_RESTART": "2", "TF_USE_LEGACY_KERAS": "1"}
    run_alone(RANKS / "keras/reproducible/fingerprint.py", "plain", env=env).good()
    torn, restart, run, training, *_ = path.read_text().splitlines()
    assert torn == '{"kind": "run", "half'
    assert json.loads(restart) == {"kind": "restart", "restart": 2}
    assert [json.loads(line)["kind"] for line in (run, training)] == ["run", "training"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    result = run_alone(
        RANKS / "keras/reproducible/fingerprint.py", "plain", env={"TNT_FINGERPRINT": str(tmp_path / "none" / "told")}
    )
    assert result.code == 1
    assert "TNT_FINGERPRINT: cannot write" in result.stderr and "No such file or directory" in result.stderr
