"""`tnt.models`, `tnt.Sequential`, and files that go on where they were written."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/models.py")


def test_sequential(found):
    assert found["sequential"] == [[True, True, "mine", 2, "Model", True]] * SIZE


def test_goes_on_where_the_file_was_written(found):
    (same, kind, optimizer, weights), other = found["goes_on_where_the_file_was_written"]
    assert (same, kind, optimizer) == (True, "Model", "Adam")
    assert other[3] == weights


def test_other_ways_to_a_model(found):
    (kinds, weights), (_, others) = found["other_ways_to_a_model"]
    assert kinds == {name: ["Model", 8] for name in ("clone", "config", "functional", "json")}
    assert weights == others


def test_not_a_configuration(found):
    for config, model in found["not_a_configuration"]:
        assert config[0] == "RuntimeError"
        assert "configuration" in config[1]
        assert model[0] == "TypeError"


def test_export(found):
    assert found["export"] == [[True, ["exported"]]] * SIZE


def test_disk_full(found):
    for rank, (error, kept, left) in enumerate(found["disk_full"]):
        assert error[0] == ("OSError" if rank == 0 else "TarantellaError")
        assert "No space left on device" in error[1]
        assert kept
        assert left == []
