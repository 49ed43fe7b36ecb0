"""Gradients of a few rows: the same bits as filled-up tables give, by whichever way moves less."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 3


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/reduction/sparse_gradients.py", env={"TNT_TIMEOUT": "60"})


BY_ROWS = ["few", "few, eager", "none on one", "none", "just few enough", "double", "rows of matrices", "rows of one",
           "rows of numbers"]  # fmt: skip
WHOLE = ["many", "many, eager", "many double"]


@pytest.mark.parametrize("name", [*BY_ROWS, *WHOLE])
def test_sums(found, name):
    for on_rank in found["sums"]:
        of = on_rank[name]
        assert of["right"], "not the sum of the tables"
        assert of["again"], "other bits the second time"
        assert of["once each"]
        assert of["way"] == ([2, 0] if name in BY_ROWS else [0, 2])
        assert of["steps"] == [0, 2, of["bytes"]]


def test_shapes_and_types(found):
    for on_rank in found["sums"]:
        assert on_rank["few"]["shape"] == [[5000, 6], "float32", [5000, 6]]
        assert on_rank["double"]["shape"] == [[5000, 6], "float64", [5000, 6]]
        assert on_rank["rows of matrices"]["shape"] == [[5000, 3, 2], "float32", [5000, 3, 2]]
        assert on_rank["rows of numbers"]["shape"] == [[5000], "float32", [5000]]


def test_bytes(found):
    """Of each step: of the most rows of a rank, index and values; or of the whole table."""
    for on_rank in found["sums"]:
        assert 0 < on_rank["few"]["bytes"] <= 2 * 20 * (8 + 6 * 4)
        assert on_rank["none"]["bytes"] == 0
        assert on_rank["many"]["bytes"] == 2 * 5000 * 6 * 4


def test_half_precision(found):
    assert found["half"] == [["bfloat16", True, [3]]] * SIZE


def test_a_rank_that_does_not_count(found):
    assert found["a_rank_that_does_not_count"] == [[[1, 2], [[1.0, 1.0], [1.0, 1.0]]]] * SIZE


def test_which_are_worthwhile(found):
    assert found["which_are_worthwhile"] == [[True, False, False, False, False]] * SIZE


def test_a_model_moves_rows(found):
    """15 samples of 4 ids in each of 4 steps, 5 on each rank; the Dense layer's 65 numbers beside."""
    for stats in found["moved_by_a_model"]:
        assert stats["bytes"] <= 4 * (20 * (8 + 16 * 4) + 65 * 4)
        assert stats["steps"] == 4


@pytest.mark.parametrize("rows", [40, 5000])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "sgd", "clipped sgd"])
def test_repeated_rows_are_those_of_one_device(found, optimizer, rows):
    """Keras 3 computes with each occurrence of a row."""
    for on_rank in found["repeated_rows"]:
        ours, plain = on_rank[f"{optimizer} {rows}"]
        np.testing.assert_allclose(ours, plain, atol=1e-6)
        assert not on_rank["said"]


@pytest.mark.parametrize("model", ["sparse_kernel", "sparse_kernel_used_twice", "Both"])
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop", "sgd", "clipped sgd"])
def test_rows_looked_up_once_are_those_of_one_device(found, optimizer, model):
    """A sparse input: Keras 3 has the sum of a row's gradients over the batch, so the ranks' rows are added up."""
    for on_rank in found["rows_looked_up_once"]:
        for ours, plain in zip(*on_rank[f"{optimizer} {model}"], strict=True):
            np.testing.assert_allclose(ours, plain, atol=1e-6)
        assert not on_rank["said"]


def test_rows_common_to_samples_are_those_of_one_device(found):
    """Embeddings of positions: one device looks up each row once, and its gradient is the sum over the batch."""
    for on_rank in found["rows_common_to_samples"]:
        assert not on_rank.pop("said")
        assert len(on_rank) == 24
        for name, (ours, plain) in on_rank.items():
            for one, other in zip(ours, plain, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-6, err_msg=name)


def test_what_an_eager_step_does_not_show_is_said_once(found):
    (said,) = found["rows_looked_up_eagerly"][0]
    assert said.startswith("with run_eagerly=True ranks cannot see"), said


def test_what_differs_from_one_device_is_said_once():
    script = RANKS / "keras/reduction/sparse_gradients.py"
    only = ["rows_looked_up_once_in_shards", "repeated_rows_in_shards"]
    shards = Findings(2, script, env={"TNT_TIMEOUT": "60"}, only=only)
    assert shards["rows_looked_up_once_in_shards"][0] == []
    (said,) = shards["repeated_rows_in_shards"][0]
    assert said.startswith("Adam and rows of an Embedding that occur several times in a batch: reproducible=V adds up")


def test_a_row_that_is_not_there(found):
    kind, text = found["a_row_that_is_not_there"][1]
    assert kind == "InvalidArgumentError"
    assert "row 5000, its table has 5000" in text
