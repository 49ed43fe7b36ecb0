"""Mini-batches of graphs: ranks that read their own train as plain Keras does on all of them; what cannot be cut is refused."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS


@pytest.fixture(scope="module", params=[(3, ""), (2, "1")], ids=["3", "legacy-2"])
def found(request):
    size, legacy = request.param
    if legacy and importlib.util.find_spec("tf_keras") is None:
        pytest.skip("tf_keras is not installed: pip install --no-deps tf_keras")
    only = ["equal", "said", "numbers"]
    return Findings(size, RANKS / "keras/data/graphs.py", env={"TF_USE_LEGACY_KERAS": legacy or "0"}, only=only)


def test_ranks_train_evaluate_and_predict_as_one_device_does(found):
    for of_rank in found["equal"]:
        assert len(of_rank) == 4
        for name, (own, alone) in of_rank.items():
            np.testing.assert_allclose(own, alone, rtol=2e-5, atol=2e-6, err_msg=name)


def test_losses_are_tried_and_a_step_of_the_users_own_is_warned_of(found):
    for messages in found["said"]:
        warned = [text for text in messages if "could not be compared" in text]
        assert all(text.startswith("train_step could not be compared") and "tnt_batch_size" in text for text in warned)
        assert len(warned) == 1


def test_the_number_of_samples_may_be_given(found):
    for losses in found["numbers"]:
        assert losses == found["numbers"][0]
        assert np.isfinite(losses).all()


@pytest.fixture(scope="module")
def refused():
    return Findings(2, RANKS / "keras/data/graphs.py", only=["refused", "not_refused"])


@pytest.mark.parametrize("name", ["shared", "evaluated", "predicted", "validation", "on a batch"])
def test_batches_that_cannot_be_cut_are_refused_before_a_step(refused, name):
    for of_rank in refused["refused"]:
        kind, text = of_rank[name]
        assert kind == "UnsupportedError"
        assert "28, 5 rows, none has a row for each sample" in text
        assert "tnt_distribute_dataset=False" in text
        assert "tnt_batch_size=" in text


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("a dense matrix", "UnsupportedError", "x[1] of a batch is a matrix of 12 x 12"),
        ("one graph", "UnsupportedError", "x[1] of a batch is a matrix of 9 x 9"),
        ("another number", "InvalidArgumentError", "tnt_batch_size is 1000"),
        ("no number", "InvalidArgumentError", "tnt_batch_size is 0.5: use a positive integer"),
        ("shared and stated", "InvalidArgumentError", "use it with tnt_distribute_dataset=False"),
    ],
)
def test_what_is_wrong_is_said(refused, name, error, says):
    for of_rank in refused["refused"]:
        assert of_rank[name][0] == error
        assert says in of_rank[name][1]


def test_batches_of_own_whose_samples_cannot_be_counted_are_refused(refused):
    for kind, text in (of_rank["not stated"] for of_rank in refused["refused"]):
        assert kind == "UnsupportedError"
        assert "the number of its samples is not known" in text
        assert "tnt_batch_size=" in text


def test_no_false_alarm(refused):
    assert refused["not_refused"] == [[[], []]] * 2
