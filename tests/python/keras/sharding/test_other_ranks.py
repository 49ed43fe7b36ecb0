"""`shard_optimizer=True` with `reproducible=8`: the bits of one rank, and files that any number of ranks goes on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.launch import RANKS, run_alone, run_ranks

SCRIPT = RANKS / "keras/sharding/other_ranks.py"


def last_line(result: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.good().stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("other_ranks")


@pytest.fixture(scope="module")
def on_two(folder):
    """What two ranks have after each of three epochs, and after the second one again."""
    return last_line(run_ranks(2, SCRIPT, folder, "whole:two"))["whole:two"]


@pytest.fixture(scope="module")
def on_one(folder, on_two):
    env = {"TNT_FINGERPRINT": str(folder / "on_one")}
    return last_line(run_alone(SCRIPT, folder, "first:one", "on:two", env=env))


@pytest.fixture(scope="module")
def on_four(folder, on_two):
    return last_line(run_ranks(4, SCRIPT, folder, "restored:two"))


@pytest.fixture(scope="module")
def on_two_again(folder, on_one, on_four):
    env = {"TNT_FINGERPRINT": str(folder / "on_two")}
    return last_line(run_ranks(2, SCRIPT, folder, "on:one", "on:restored-two", env=env))


def test_reproducible_on_one_rank_and_on_two(on_one, on_two):
    assert on_one["first:one"] == on_two[0]


def test_weights_of_a_file_take_their_state_along(on_two):
    assert on_two[3] == on_two[1]
    assert len({digest for digest, _ in on_two}) == 3


def test_one_rank_goes_on_where_two_were(on_one, on_two):
    assert on_one["on:two"] == on_two[1]


def test_four_ranks_go_on_from_the_backup_of_two(on_four, on_two):
    digest, losses = on_four["restored:two"]
    assert [digest, losses] == on_two[1], "only the second epoch was trained"


def test_two_ranks_go_on_where_one_and_four_were(on_two_again, on_two):
    assert on_two_again == {"on:one": on_two[1], "on:restored-two": on_two[2]}


def trained(file: Path) -> list[Any]:
    """The hashes of optimizer and weights that each training has at the end of its epoch."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [[line["optimizer"], line["weights"]] for line in lines if line["kind"] == "epoch"]


def test_fingerprints_are_those_of_one_rank(folder, on_two_again):
    _, alone = trained(folder / "on_one")
    together, _ = trained(folder / "on_two")
    assert alone == together
