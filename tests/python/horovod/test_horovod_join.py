"""Ranks that run out of data while others train on: `hvd.join` beside tape and optimizer, compared with serial Keras."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

SCRIPT = RANKS / "horovod/horovod_join.py"
OPTIONS = {"launcher_options": ["--horovod"]}


@pytest.fixture(scope="module")
def found():
    return Findings(3, SCRIPT, **OPTIONS)


@pytest.mark.parametrize("check", ["optimizer", "fit", "passes"])
def test_an_optimizer(found, check):
    for last, error in found[check]:
        assert last == 2 and error < 1e-6


def test_a_tape(found):
    for results in found["tape"]:
        for last, error in results.values():
            assert last == 2 and error < 1e-6


def test_a_loss_scale(found):
    """The second step of ranks 1 and 2 overflows on rank 2."""
    assert found["loss_scale"] == [[2, 1, 4.0], [2, 1, 2.0], [2, 3, 2.0]]


def test_no_rank_joins_a_first_step(found):
    for error, text in found["first_step"]:
        assert error == "CallsDifferError"
        assert text.startswith("rank 0 has joined while rank 1 calls the reduction of the gradients of 'sequential/dense/")
        assert text.endswith("and 1 more for the first time: a rank must take a first step before it joins")


def test_a_rank_that_has_dropped_its_model(found):
    (error, text), *others = found["dropped_model"]
    assert error == "WrongArgumentError" and text.endswith("keep it until join returns")
    assert all("rank 0 left the job" in text for _, text in others)


@needs_tf_keras
def test_legacy_keras():
    checks = ["tape", "optimizer", "fit", "loss_scale"]
    found = Findings(2, SCRIPT, env={"TF_USE_LEGACY_KERAS": "1"}, only=checks, **OPTIONS)
    for results in found["tape"]:
        assert all(last == 1 and error < 1e-6 for last, error in results.values())
    assert all(last == 1 and error < 1e-6 for check in ("optimizer", "fit") for last, error in found[check])
    assert found["loss_scale"] == [[1, 1, 4.0], [1, 3, 2.0]]  # legacy Keras counts the step that overflows
