"""`tnt.elastic`: loops of a script that lose ranks end with the weights of one device, which NumPy computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.launch import RANKS, Result, run_ranks

SCRIPT = RANKS / "keras/elastic_loop.py"
EPOCHS, BATCHES, BATCH = 4, 5, 24


def train(ranks: int, folder: Path, plan: str, *options: str, flags: Any = ()) -> Result:
    return run_ranks(ranks, SCRIPT, folder, plan, *options, launcher_options=["--elastic", *flags], timeout=120)


def found_in(folder: Path) -> dict[int, dict[str, Any]]:
    """What ranks have found that were left in the end, by the numbers with which they started."""
    return {int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("[0-9].json"))}


def weights_of_one_device(epochs: int, batches: int, passes: int) -> list[np.ndarray]:
    """Stochastic gradient descent with momentum on the mean square of a linear model, in double precision.

    passes: steps whose gradients are added up for each update.
    """
    x = np.random.default_rng(0).normal(size=(batches * BATCH, 4)).astype(np.float32).astype(np.float64)
    y = x @ [[1.0], [2.0], [-1.0], [0.5]] + 0.3
    kernel, bias, velocity = np.zeros((4, 1)), np.zeros(1), [np.zeros((4, 1)), np.zeros(1)]
    for update in [*range(batches // passes)] * epochs:
        rows = slice(update * passes * BATCH, (update + 1) * passes * BATCH)
        error = x[rows] @ kernel + bias - y[rows]
        gradients = [2 * x[rows].T @ error / len(error), 2 * error.mean(0)]
        velocity = [0.9 * v - 0.05 * g for v, g in zip(velocity, gradients, strict=True)]
        kernel, bias = kernel + velocity[0], bias + velocity[1]
    return [kernel, bias]


def check(
    found: dict[int, dict[str, Any]],
    left: set[int],
    result: Result,
    epochs: int = EPOCHS,
    batches: int = BATCHES,
    passes: int = 1,
) -> None:
    assert found.keys() == left, result.said
    for one in found.values():
        for weights, expected in zip(one["weights"], weights_of_one_device(epochs, batches, passes), strict=True):
            np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-5, err_msg=result.said)
        assert one["steps"] == epochs * batches // passes
        assert all(ones == size for ones, size in one["sums"]), "a step was not traced again for its ranks"


LOSSES = {
    "between two commits, and rank 0 thereafter": ("1:stepped:5,0:step:16", {2}, [4, 0]),
    "while they commit": ("2:save:6,0:save:11", {1}, [4, 0]),
    "rank 0, before the first step, and another one where the state is shared": ("0:step:1,1:set_values:3", {2}, [4, 0]),
    "at the end": ("1:end:1", {0, 2}, [4, 0]),
}


@pytest.mark.parametrize(("plan", "left", "state"), LOSSES.values(), ids=LOSSES.keys())
def test_the_weights_are_those_of_one_device(tmp_path: Path, plan: str, left: set[int], state: list[int]):
    result = train(3, tmp_path, plan, *(["optimizer"] if "end" in plan else [])).good()
    found = found_in(tmp_path)
    check(found, left, result)
    for place, one in enumerate(found.values()):
        assert one["began"][0][3] == 3
        assert one["began"][-1][2:] == [place, len(left)]
        assert (one["outcome"], one["state"]) == ("done", state)
    assert result.stderr.count("(--elastic)") == 3 - len(left)


def test_a_loss_costs_the_steps_since_the_last_commit(tmp_path: Path):
    result = train(2, tmp_path, "1:step:9", "optimizer").good()  # in epoch 1 the fourth; two batches were committed
    check(found_in(tmp_path), {0}, result)
    assert found_in(tmp_path)[0]["began"] == [[0, 0, 0, 2], [1, 2, 0, 1]]


def test_ranks_are_lost_before_and_after_gradients_of_two_steps_are_applied(tmp_path: Path):
    result = train(3, tmp_path, "1:step:6,0:step:8", "optimizer", "passes=2").good()
    check(found_in(tmp_path), {2}, result, batches=4, passes=2)


def test_one_loop_after_another(tmp_path: Path):
    result = train(3, tmp_path, "1:end:1,2:end:2", "again").good()
    check(found_in(tmp_path), {0}, result, EPOCHS + 1)


def test_newcomers_join_at_a_commit(tmp_path: Path):
    result = train(2, tmp_path, "1:stepped:3", "wait", flags=["--replacements", 1]).good()
    found = found_in(tmp_path)
    check(found, {0, 2}, result)
    assert found[0]["began"][-1] == [*found[2]["began"][0][:2], 0, 2], result.said
    assert found[2]["began"][0][2:] == [1, 2]


def test_a_newcomer_becomes_rank_0(tmp_path: Path):
    result = train(2, tmp_path, "1:stepped:3,0:end:1", "wait", flags=["--replacements", 1]).good()
    check(found_in(tmp_path), {2}, result)


def test_a_newcomer_with_another_state_ends_alone(tmp_path: Path):
    result = train(2, tmp_path, "1:stepped:3", "wait", "model", flags=["--replacements", 1])
    check(found_in(tmp_path), {0}, result)
    said = next(line for line in result.stderr.splitlines() if "tarantella: rank 2 (pid " in line and "exited" in line)
    assert "its state has other values or variables" in said


def test_an_error_of_the_script_ends_the_job(tmp_path: Path):
    result = train(2, tmp_path, "1:stepped:error")
    assert result.code == 1
    assert "ValueError: a fault of the script" in result.stderr.splitlines()[-1], result.said


@pytest.mark.parametrize(
    ("option", "reason"),
    {
        "bare": "--elastic: ranks go on without a lost one in fit, and in functions of tnt.elastic.run",
        "fit": "UnsupportedError: --elastic: a method of tnt.Model that communicates was called inside of a function",
        "passes=3": "UnsupportedError: commit: each rank holds gradients that it has added up and not applied yet",
        "name": "AttributeError: state.steps would be in no commit: give steps=... to tnt.elastic.State",
    }.items(),
)
def test_wrong_use_is_refused(tmp_path: Path, option: str, reason: str):
    result = train(
        2, tmp_path, "1:stepped:3" if option == "bare" else "", option, *(["optimizer"] if "passes" in option else [])
    )
    assert result.code != 0
    assert reason in result.stderr, result.said
