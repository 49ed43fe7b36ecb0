"""`shard_optimizer=True`: each rank holds a part of the optimizer's state, with the bits and files of an ordinary training."""

from __future__ import annotations

import json

import pytest

from support.findings import Findings
from support.launch import RANKS

SCRIPT = RANKS / "keras/sharding/sharded_optimizer.py"
SIZE = 2
MOST = [
    "the_same_bits",
    "every_optimizer_of_keras",
    "memory",
    "files",
    "checkpoints",
    "single_steps",
    "refused",
]


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, SCRIPT, only=MOST)


def test_the_same_bits_as_an_ordinary_training(found):
    for of_rank in found["the_same_bits"]:
        different = [name for name, (ordinary, sharded) in of_rank.items() if ordinary != sharded]
        assert not different
        assert of_rank == found["the_same_bits"][0], "all ranks have the same weights and read the same state"


def test_the_state_of_every_optimizer_is_told_apart_by_variables(found):
    assert found["every_optimizer_of_keras"] == [[]] * SIZE


def test_each_rank_has_memory_for_its_part_alone(found):
    parts = found["memory"]
    assert sum(part["here"] for part in parts) == parts[0]["whole"]
    assert all(part["elsewhere"] == 0 for part in parts)
    assert all(part["here"] > 0 for part in parts)
    assert parts[0]["slots"] == 10


def test_files_are_those_of_one_device(found):
    for of_rank in found["files"]:
        assert of_rank["same files"] == [True] * 4
        assert len(set(of_rank["goes on"])) == 1, "with shards, without, and from weights"


def test_checkpoints_fit_both_ways(found):
    assert all(len(set(of_rank)) == 1 for of_rank in found["checkpoints"])


def test_single_steps(found):
    assert all(ordinary == sharded for ordinary, sharded in found["single_steps"])


def test_what_cannot_be_right_is_refused(found):
    for coupled, own_apply, number, whole, read, shape, swaps in found["refused"]:
        assert coupled[0] == own_apply[0] == whole[0] == read[0] == "UnsupportedError"
        assert "Coupled cannot be spread over ranks, as what it makes of one variable depends on the others" in coupled[1]
        assert "OwnApply cannot be spread over ranks, as it has apply of its own" in own_apply[1]
        assert number == ["TypeError", "shard_optimizer is 1: use True or False"]
        assert "is held by one rank alone" in whole[1]
        assert "alone holds it: read it by numpy() on all ranks at once" in read[1]
        assert shape[0] == "ValueError"
        assert not swaps or "SwapEMAWeights changes or reads the optimizer's whole state at once" in swaps[1]


def test_four_ranks_and_fingerprints(tmp_path):
    file = tmp_path / "fingerprints"
    on_four = Findings(4, SCRIPT, only=["few_optimizers", "fingerprints"], env={"TNT_FINGERPRINT": str(file)})
    for of_rank in on_four["few_optimizers"]:
        assert all(ordinary == sharded for ordinary, sharded in of_rank.values())
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    ordinary, sharded = ([x for x in lines if x["kind"] == "epoch" and x["training"] == n] for n in (4, 5))
    assert ordinary[0]["optimizer"] == sharded[0]["optimizer"]
    assert ordinary[0]["weights"] == sharded[0]["weights"]
