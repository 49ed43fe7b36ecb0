"""What scripts for Horovod train on two ranks, compared with serial Keras."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

CLOSE = 2e-6


@pytest.fixture(scope="module")
def found():
    return Findings(2, RANKS / "horovod/horovod_training.py", launcher_options=["--horovod"])


def test_fit_with_callbacks(found):
    for on_rank in found["fit"]:
        assert on_rank["error"] < 1e-5, on_rank
        assert on_rank["alike"] and on_rank["rate"] and on_rank["class"] == "Adam" and on_rank["loaded"] == 0.0


def test_loop_in_a_graph(found):
    for errors in found["loop"]:
        assert errors["average"] < CLOSE and errors["sum"] < CLOSE and errors["fp16"] < 1e-3, errors


def test_gradients_of_several_passes(found):
    for errors in found["passes"]:
        assert all(error < CLOSE for error in errors.values()), errors


@needs_tf_keras
def test_gradients_of_several_passes_in_legacy_keras():
    script, env = RANKS / "horovod/horovod_training.py", {"TF_USE_LEGACY_KERAS": "1"}
    found = Findings(2, script, launcher_options=["--horovod"], env=env, only=["passes", "iterations"])
    for errors in found["passes"]:
        assert all(error < CLOSE for error in errors.values()), errors
    # batches 1 and 3 are applied, when the schedule has seen one and three batches
    assert found["iterations"] == [[[1, 2, 3, 4, 5], -(1.0 + 10.0)]] * 2


def test_local_layers_stay_apart(found):
    assert found["local_layers"] == [[True, True, False, False]] * 2


def test_a_process_set_trains_alone(found):
    assert max(found["process_set"]) < CLOSE


def test_embeddings(found):
    for errors in found["embedding"]:
        assert max(errors) < CLOSE, errors


def test_all_ranks_skip_a_step_or_none(found):
    (refused, updates, scale, weights), other = found["loss_scale"]
    assert (refused, updates, scale) == ("UnsupportedError", 3, 2.0)
    assert other == [refused, updates, scale, weights]


def test_names(found):
    assert found["names"] == [[True, "ValueError", "TypeError", "RuntimeError"]] * 2


def test_ranks_shuffle_in_orders_of_their_own(found):
    assert found["shuffles_differ"] == [True, True]
