"""Losses and training steps that are not means over samples: summed, refused, or computed from the samples of all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
JOBS = [pytest.param((3, {}), id="3-ranks"), pytest.param((2, LEGACY), id="2-ranks-legacy-keras")]


@pytest.fixture(scope="module", params=JOBS)
def found(request):
    size, env = request.param
    return Findings(size, RANKS / "keras/step/loss_trial.py", env={"TNT_TIMEOUT": "30", **env}, timeout=150)


def same_as_serial(on_rank):
    ours, truth = on_rank
    assert ours.keys() == truth.keys()
    assert len(ours) > 2
    for name, values in truth.items():
        np.testing.assert_allclose(ours[name], values, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "name", ["reduce_sum", "tensordot", "vector in a step", "sum in a step", "sum in compute_loss", "mean in a step"]
)
def test_a_sum_is_summed(found, name):
    for on_rank in found["summed"]:
        same_as_serial(on_rank[name])


@pytest.mark.parametrize("name", ["rmse", "ratio", "contrastive", "dice"])
def test_a_loss_that_couples_samples_is_refused(found, name):
    for on_rank in found["refused"]:
        kind, text = on_rank[name]
        assert kind == "UnsupportedError"
        assert "couples the samples of a batch: of 8 made-up samples it is" in text
        assert "of 5 and 3 of them, weighted by samples" in text
        for way_out in ("across_ranks=True", "tnt.all_gather", "tnt_distribute_dataset=False", "accept_approximate=True"):
            assert way_out in text


@pytest.mark.parametrize("name", ["step", "compute_loss"])
def test_a_step_that_couples_samples_is_refused(found, name):
    for on_rank in found["refused"]:
        kind, text = on_rank[name]
        assert kind == "UnsupportedError"
        assert "couples the samples of a batch: on 3 made-up samples the gradient of" in text
        assert "accept_approximate=True" in text


def test_evaluate_refuses_alike(found):
    for kind, text in found["evaluated"]:
        assert kind == "UnsupportedError"
        assert "the loss 'rmse' couples the samples" in text


def test_what_is_accepted_is_warned_of_once(found):
    for of_loss, of_step in found["accepted"]:
        assert len(of_loss) == len(of_step) == 1
        assert "the loss 'rmse' couples" in of_loss[0]
        assert "the training step of OwnStep couples" in of_step[0]


@pytest.mark.parametrize("name", ["rmse", "dice", "contrastive", "gathered", "gathered in a step"])
def test_a_loss_of_all_samples_is_exact(found, name):
    for on_rank in found["over_all_ranks"]:
        same_as_serial(on_rank[name])


def test_a_log_that_is_neither_is_named_once(found):
    for messages in found["other_numbers"]:
        assert len(messages) == 1
        assert "train_step: the log 'norm': neither a mean nor a sum over samples" in messages[0]


def test_batches_of_each_rank_are_batches(found):
    assert not any(found["batches_of_its_own"])


def test_no_loss_of_keras_is_refused(found):
    for on_rank in found["losses_of_keras"]:
        assert len(on_rank) == 17
        assert not any(on_rank), on_rank


def test_what_cannot_be_compared_is_said_once(found):
    for noise, noise_in_a_step, gathers in found["not_compared"]:
        assert [len(said) for said in (noise, noise_in_a_step, gathers)] == [1, 1, 1], (noise, noise_in_a_step, gathers)
        assert "it draws random numbers" in noise[0]
        assert "it draws random numbers" in noise_in_a_step[0]
        assert "it calls tnt.all_reduce" in gathers[0]


def test_a_trial_leaves_no_trace(found):
    for on_rank in found["no_trace"]:
        assert on_rank == [True, True, True]
