"""The order of arrival: the first step's plan follows the order in which the traced step makes gradients."""

from __future__ import annotations

import json
from itertools import groupby

import pytest

from support.launch import RANKS, run_ranks


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrival")
    job = run_ranks(
        2, RANKS / "keras/reduction/gradient_order.py", folder, timeout=120, launcher_options=["--log-level", "info"]
    ).good()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)], job.stderr


def layers(buckets):
    """The layers in the order in which their gradients are reduced, a tensor in each bucket."""
    return [name for name, _ in groupby(bucket.split("/")[-2] for bucket in buckets)]


def test_ranks_agree(found):
    (first, second), _ = found
    assert first == second


@pytest.mark.parametrize("name", ["subclassed", "several steps", "accumulating"])
def test_the_first_bucket_holds_what_backward_makes_first(found, name):
    case = found[0][0][name]
    assert layers(case["before"]) == ["hidden_3", "hidden_2", "hidden_1", "hidden_0", "head"]
    assert layers(case["after"]) == ["head", "hidden_0", "hidden_1", "hidden_2", "hidden_3"]


@pytest.mark.parametrize("name", ["eager", "functional", "sequential"])
def test_the_plan_stays_where_the_usual_order_is_right_or_no_graph_says_another(found, name):
    case = found[0][0][name]
    assert case["before"] == case["after"]


def test_a_change_of_the_plan_is_logged(found):
    assert found[1].count("the plan changes") == 3


def test_training_is_that_of_one_device(found):
    for name, case in found[0][0].items():
        assert case["difference"] < 1e-6, name


def test_the_order_changes_no_bit(found):
    cases = found[0][0]
    assert cases["subclassed"]["weights"] == cases["several steps"]["weights"]
