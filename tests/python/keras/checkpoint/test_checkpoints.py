"""A training that was broken off goes on from its checkpoint as if nothing had been, also on another number of ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS, Result, run_alone, run_ranks

pytestmark = pytest.mark.long

SCRIPT = RANKS / "keras/checkpoint/checkpoints.py"
CLOSE = 2e-6
LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
ON_ANY_NUMBER = [
    "shuffled",
    "after_an_epoch",
    "random_maps",
    "without_end",
    "of_unknown_length",
    "arrays",
    "generator",
    "python_sequence",
]


def start(ranks: int, mode: str, folder: Path, *cases: str, env: dict[str, str] | None = None) -> Result:
    if ranks == 1:
        return run_alone(SCRIPT, mode, folder, *cases, timeout=280, env=env)
    return run_ranks(ranks, SCRIPT, mode, folder, *cases, timeout=280, env=env)


def outcome(folder: Path, mode: str) -> dict[str, Any]:
    return json.loads((folder / f"{mode}.json").read_text())


class Begun:
    """Trainings that have broken off on two ranks, in a folder that is copied for each who goes on."""

    def __init__(self, folder: Path, *cases: str, env: dict[str, str] | None = None) -> None:
        self._folder, self._env = folder / "2", env
        self._folder.mkdir()
        start(2, "begin", self._folder, *cases, env=env).good()
        self.whole = outcome(self._folder, "begin")

    def continued(self, ranks: int, *cases: str) -> dict[str, Any]:
        copy = self._folder.with_name(f"on {ranks}")
        shutil.copytree(self._folder, copy)
        start(ranks, "continue", copy, *cases, env=self._env).good()
        return outcome(copy, "continue")


def apart(a: Any, b: Any) -> float:
    return max((float(np.abs(np.subtract(x, y)).max()) for x, y in zip(a, b, strict=True)), default=0.0)


def same(went_on: dict[str, Any], whole: dict[str, Any], close: float = CLOSE) -> None:
    assert went_on["epochs"] == whole["epochs"]
    assert went_on["iterations"] == whole["iterations"]
    assert went_on["steps"] == whole["steps"]
    assert list(went_on["logs"]) == list(whole["logs"])
    assert apart(went_on["logs"].values(), whole["logs"].values()) <= close
    assert apart(went_on["weights"], whole["weights"]) <= close


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return Begun(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="module")
def on_two(begun):
    return begun.continued(2)


@pytest.fixture(scope="module")
def on_one(begun):
    return begun.continued(1, *ON_ANY_NUMBER)


@pytest.fixture(scope="module")
def on_three(begun):
    return begun.continued(3, "shuffled", "random_maps", "arrays")


@pytest.mark.parametrize("name", [*ON_ANY_NUMBER, "of_each_rank"])
def test_on_the_same_number_of_ranks(begun, on_two, name):
    same(on_two[name], begun.whole[name])


@pytest.mark.parametrize("name", ON_ANY_NUMBER)
def test_on_one_rank_without_the_launcher(begun, on_one, name):
    same(on_one[name], begun.whole[name])


@pytest.mark.parametrize("name", ["shuffled", "random_maps", "arrays"])
def test_on_more_ranks(begun, on_three, name):
    same(on_three[name], begun.whole[name])


def test_killed_again_and_again(begun, tmp_path):
    for ranks in (2, 1, 4):
        result = start(ranks, "kill", tmp_path, "random_maps")
        assert result.code != 0
        assert not result.left_behind
    start(2, "continue", tmp_path, "random_maps").good()
    same(outcome(tmp_path, "continue")["random_maps"], begun.whole["random_maps"])


@needs_tf_keras
def test_legacy_keras(tmp_path):
    cases = ["shuffled", "without_end", "arrays", "python_sequence"]
    begun = Begun(tmp_path, *cases, "of_each_rank", env=LEGACY)
    for ranks in (1, 2):
        went_on = begun.continued(ranks, *cases, *(["of_each_rank"] if ranks == 2 else []))
        for name, one in went_on.items():
            same(one, begun.whole[name])


# ----------------------------------------------------------------------------------------------------- how it is used

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/checkpoint/checkpoint_uses.py", timeout=280)


def same_everywhere(on_ranks: list[Any]) -> Any:
    assert all(on_rank == on_ranks[0] for on_rank in on_ranks), on_ranks
    return on_ranks[0]


def test_a_training_that_is_over_does_nothing(found):
    trained, same_logs, same_weights, more_epochs, more_steps = same_everywhere(found["over"])
    assert trained == 0
    assert same_logs
    assert same_weights
    assert more_epochs == [0, 1, 2]
    assert more_steps == 5


def test_each_fit_has_its_own(found):
    files, first, second = same_everywhere(found["several_fits"])
    assert files == ["fit1-step000000005.npz", "fit2-step000000010.npz"]
    assert first == [0]
    assert second == [0, 1]


def test_a_stop_in_the_middle_of_an_epoch_goes_on_there(found):
    assert same_everywhere(found["stopped_in_the_middle"]) == [[0], 2, [0, 1], 8]


def test_by_the_clock(found):
    assert same_everywhere(found["every_seconds"]) >= 2


def test_a_damaged_one_is_not_used(found):
    for rank, (steps, weights_apart, warnings) in enumerate(found["damaged"]):
        assert steps == 5
        assert weights_apart == 0
        assert rank != 0 or ("fit1-step000000010.npz is damaged" in warnings[0] and len(warnings) == 1)


def test_a_log_goes_on(found):
    assert found["csv"][0] == [["epoch", "0", "1", "2"], True]


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_full_disk(found, in_parts):
    for rank, outcomes in enumerate(found["disk_full"]):
        error, files, good = outcomes[in_parts]
        assert error[0] == "TarantellaError"
        assert "cannot write the checkpoint" in error[1]
        assert "File too large" in error[1]
        assert in_parts or rank == 0 or error[1].startswith("rank 0 failed:")
        assert [name for name in files if name.endswith(".npz")] == ["fit1-step000000005.npz"]
        assert good


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("another_order", "the training data has changed since the checkpoint was written: the first batch is another one"),
        ("another_later_order", "the last batch before epoch 1, step 4 is another one"),
        ("another_length", "an epoch has 4 batches now, and had 5"),
        ("ended_early", "it ends after 2 batches of epoch 1"),
        ("another_model", "last/kernel of the model is of shape (8, 3)"),
        ("another_beginning", "fit is to begin with initial_epoch=1, and the checkpoint in"),
        ("two_of_them", "fit was given 2 Checkpoints"),
        ("beside_backup", "which both restore"),
        ("plain_model", "works in fit of a tnt.Model"),
        ("no_steps", "every_steps is 0"),
        ("no_seconds", "every_seconds is -1"),
        ("none_kept", "keep is 0"),
    ],
)
def test_what_does_not_fit_is_an_error_on_all_ranks(found, name, text):
    for kind, message in (on_rank[name] for on_rank in found["errors"]):
        assert kind in ("InvalidArgumentError", "TarantellaError")
        assert text in message, message


def test_ranks_with_other_settings(found):
    for kind, message in found["other_settings"]:
        assert kind == "MismatchError"
        assert "every_steps of Checkpoint is 4 on rank 1 and 3 on rank 0" in message
