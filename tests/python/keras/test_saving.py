"""Files are written once, whole, and are plain Keras files; a failure to write reaches all ranks."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/saving.py")


def test_save_writes_one_plain_file(found):
    for written, replaced, is_plain, names_us, same_predictions, same_optimizer in found["save"]:
        assert written == ["model.keras"]
        assert replaced, "a second save writes beside the file and renames"
        assert is_plain
        assert not names_us
        assert same_predictions
        assert same_optimizer


def test_lost_sums_are_neither_saved_nor_returned(found):
    for saved, trained, kept, exists in found["lost_sums_are_neither_saved_nor_returned"]:
        assert saved == trained == ["TarantellaError", "the sums are lost"]
        assert "the sums are lost" in kept[1]
        assert not exists


def test_the_older_format(found):
    assert found["save_as_h5"] == [["model.h5"]] * SIZE


def test_each_rank_may_write_its_own(found):
    assert found["save_on_all_ranks"] == [["mine0.keras", "mine1.keras"]] * SIZE


def test_training_goes_on(found):
    first, second = found["training_goes_on_from_a_file"]
    assert first == second


def test_weights_there_and_back(found):
    assert found["weights_there_and_back"] == [[True, True, True]] * SIZE


@pytest.mark.parametrize("index", range(3), ids=["folder", "model", "weights"])
def test_a_failure_reaches_all_ranks(found, index):
    (kind, text), (other_kind, other_text) = (on_rank[index] for on_rank in found["saving_fails"])
    assert kind in ("ValueError", "FileNotFoundError")
    assert other_kind == "TarantellaError"
    assert other_text.startswith(f"rank 0 failed: {kind}: {text[:200]}")


def test_a_failed_write_leaves_the_old_file(found):
    (error, text), (other_error, _) = found["a_failed_write_leaves_the_old_file"]
    assert error == ["OSError", "no space left"]
    assert other_error == ["TarantellaError", "rank 0 failed: OSError: no space left"]
    assert text == "old"


def test_nothing_else_is_left(found):
    expected = ["mine0.keras", "mine1.keras", "model.h5", "model.keras", "some.weights.h5", "text.keras"]
    assert found["nothing_else_is_left"] == [expected] * SIZE
