"""`shard_optimizer=True`: each rank holds a part of the optimizer's state, with the bits and files of an ordinary training."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS, run_ranks

pytestmark = pytest.mark.long

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/sharding/sharded_optimizer.py")


@pytest.mark.parametrize("name", ["the_same_bits", "each_kind_of_optimizer"])
def test_the_same_bits_as_an_ordinary_training(found, name):
    for of_rank in found[name]:
        different = [name for name, (ordinary, sharded) in of_rank.items() if ordinary != sharded]
        assert not different
        assert of_rank == found[name][0], "all ranks have the same weights and read the same state"


def test_every_optimizer_of_keras_is_tried(found):
    assert found["kinds_that_are_not_tried"] == [[]] * SIZE


def test_the_state_of_every_optimizer_is_told_apart_by_variables(found):
    assert found["whole_state_of_a_kind"] == [[]] * SIZE


def test_each_rank_has_memory_for_its_part_alone(found):
    parts = found["memory"]
    assert sum(part["here"] for part in parts) == parts[0]["whole"]
    assert all(part["elsewhere"] == 0 for part in parts)
    assert all(part["here"] > 0 for part in parts)
    assert parts[0]["slots"] == 10
    assert parts[0]["owners"] == [[1] * 4], "gradients go to their owners; that of rank 0's table comes by rows"


def test_files_are_those_of_one_device(found):
    for whole, written in found["files"]:
        assert written
        assert set(written) == {whole}


def test_checkpoints_fit_both_ways(found):
    for whole, *continued in found["checkpoints"]:
        assert continued == [[whole, 5], [whole, 2]]


def test_the_environment_may_ask_for_it(found):
    error = ["InvalidArgumentError", "TNT_SHARD_OPTIMIZER=yes: expected 0 or 1"]
    assert found["setting"] == [[[True, False], error]] * SIZE


TEXTS = {
    "coupled": "Coupled cannot be spread over ranks, as what it makes of one variable depends on the others",
    "own apply": "OwnApply cannot be spread over ranks, as it has apply of its own",
    "own pairs": "OwnPairs cannot be spread over ranks, as it has apply_gradients of its own",
    "several": "MultiOptimizer cannot be spread over ranks, as it passes variables on to other optimizers",
    "whole": "is held by one rank alone",
    "used": "alone holds it: read it by numpy() on all ranks at once",
    "swaps": "SwapEMAWeights changes or reads the optimizer's whole state at once",
    "orbax": "OrbaxCheckpoint changes or reads the optimizer's whole state at once",
}


def test_what_cannot_be_right_is_refused(found):
    for errors in found["refused"]:
        assert errors.pop("number") == ["TypeError", "shard_optimizer is 1: use True or False"]
        assert errors.pop("shape")[0] == "ValueError"
        assert errors.keys() >= {"coupled", "own apply", "whole", "used"}
        for name, part in {"other value": "rank 1 assigns another value", "other variable": "rank 1 assigns to "}.items():
            kind, text = errors.pop(name)
            assert kind == "MismatchError", name
            assert part in text and "every rank must call it" in text
        for name, (kind, text) in errors.items():
            assert kind == "UnsupportedError", name
            assert TEXTS[name] in text


@pytest.mark.parametrize(("where", "error"), [("callback", "MismatchError: rank "), ("script", "PeerLostError: rank 1 left")])
def test_reading_on_one_rank_is_told(where, error):
    result = run_ranks(SIZE, RANKS / "keras/sharding/read_alone.py", where)
    assert result.code == 1, result.said
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("tarantella: rank "))
    assert error in line, result.said
    assert "shard_optimizer=True" in line, result.said
    assert "tnt.callbacks.Callback(callback)" in line, result.said


def test_a_callback_of_the_master_may_read():
    result = run_ranks(SIZE, RANKS / "keras/sharding/read_alone.py", "wrapped").good()
    assert "epoch 0: 10 variables" in result.stdout
