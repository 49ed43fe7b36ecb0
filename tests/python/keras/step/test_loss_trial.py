"""Losses and training steps that are not means over samples: summed, refused, or computed from the samples of all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

pytestmark = pytest.mark.long


SCRIPT = RANKS / "keras/step/loss_trial.py"
SHORT = {"TNT_TIMEOUT": "30"}
LEGACY_TOO = ["summed", "refused", "added", "added_and_coupled", "evaluated", "accepted", "single_batches", "several_outputs"]


@pytest.fixture(scope="module")
def keras3():
    return Findings(2, SCRIPT, env=SHORT, timeout=150)


@pytest.fixture(scope="module")
def legacy():
    return Findings(2, SCRIPT, env={**SHORT, "TF_USE_LEGACY_KERAS": "1"}, timeout=150, only=LEGACY_TOO)


@pytest.fixture(scope="module")
def on_three():
    return Findings(3, SCRIPT, env=SHORT, timeout=150, only=["refused"])


@pytest.fixture(params=["keras3", pytest.param("legacy", marks=needs_tf_keras)])
def found(request):
    return request.getfixturevalue(request.param)


def same_as_serial(of_ranks, name):
    """Rank 0 has trained as plain Keras does, too."""
    truth = of_ranks[0][name][1]
    assert len(truth) > 2
    for ours, _ in (on_rank[name] for on_rank in of_ranks):
        assert ours.keys() == truth.keys()
        for key, values in truth.items():
            np.testing.assert_allclose(ours[key], values, rtol=2e-5, atol=1e-6, err_msg=key)


@pytest.mark.parametrize(
    "name", ["reduce_sum", "tensordot", "vector in a step", "sum in a step", "sum in compute_loss", "mean in a step"]
)
def test_a_sum_is_summed(found, name):
    same_as_serial(found["summed"], name)


def test_on_another_number_of_ranks(on_three):
    for on_rank in on_three["refused"]:
        assert len(on_rank) > 5
        for kind, text in on_rank.values():
            assert kind == "UnsupportedError"
            assert "couples the samples of a batch" in text


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_loss_that_a_layer_adds_is_summed_or_not(found, name):
    same_as_serial(found["added"], name)


def test_a_loss_that_a_layer_adds_and_couples_samples_is_refused(found):
    for kind, text in found["added_and_coupled"]:
        assert kind == "UnsupportedError"
        assert "adds by add_loss couples the samples of a batch: of 3 made-up samples it is" in text
        assert "accept_approximate=True" in text


def test_a_model_whose_output_couples_samples_is_refused(keras3):
    for on_rank in keras3["outputs_that_couple"]:
        for kind, text in on_rank:
            assert kind == "UnsupportedError"
            assert "for a sample depends on the other samples of its batch: of 3 made-up samples it differs by" in text
            assert "accept_approximate=True" in text


@pytest.mark.parametrize("name", ["median", "largest", "contrastive"])
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
        assert "the loss 'largest' couples the samples" in text


def test_what_is_accepted_is_warned_of_once(found):
    for of_loss, of_step in found["accepted"]:
        assert len(of_loss) == len(of_step) == 1
        assert "the loss 'largest' couples" in of_loss[0]
        assert "the training step of OwnStep couples" in of_step[0]


@pytest.mark.parametrize("name", ["largest", "contrastive", "gathered", "gathered in a step"])
def test_a_loss_of_all_samples_is_exact(keras3, name):
    same_as_serial(keras3["over_all_ranks"], name)


def test_a_log_that_is_neither_is_named_once(keras3):
    for messages in keras3["other_numbers"]:
        assert len(messages) == 1
        assert "train_step: the log 'norm': neither a mean nor a sum over samples" in messages[0]


def test_batches_of_each_rank_are_batches(keras3):
    assert not any(keras3["batches_of_its_own"])


def test_no_loss_of_keras_is_refused(keras3):
    for on_rank in keras3["losses_of_keras"]:
        assert on_rank == [17, []]


def test_what_cannot_be_compared_is_said_once(keras3):
    for noise, noise_in_a_step, shuffled, gathers in keras3["not_compared"]:
        assert [len(said) for said in (noise, noise_in_a_step, shuffled, gathers)] == [1, 1, 2, 1]
        assert "it draws random numbers" in noise[0]
        assert "it draws random numbers" in noise_in_a_step[0]
        assert shuffled[0].startswith("train_step could")
        assert shuffled[1].startswith("test_step could")
        assert "it draws random numbers by RandomShuffle" in shuffled[0]
        assert "it calls tnt.all_gather" in gathers[0]


def test_random_numbers_forbid_no_comparison(keras3):
    for of_loss, of_step in keras3["compared_without_noise"]:
        assert len(of_loss) == len(of_step) == 1
        assert "the loss 'noisy_sum' is a sum" in of_loss[0]
        assert "the gradients of train_step are sums" in of_step[0]


def test_all_losses_that_couple_samples_are_named(found):
    for kind, text in found["several_outputs"]:
        assert kind == "UnsupportedError"
        assert "the loss 'largest' of the output 'first' couples" in text
        assert "the loss 'median' of the output 'third' couples" in text
        assert "second" not in text


def test_a_step_gets_a_single_batch_as_from_keras(found):
    for on_rank in found["single_batches"]:
        ours, plain = on_rank[:4], on_rank[4:]
        assert ours == plain
        assert sum(map(len, ours)) == 2  # one of the two numbers of parts is wrong, in training and in the test


def test_a_trial_leaves_no_trace(keras3):
    for on_rank in keras3["no_trace"]:
        assert on_rank == [True, True, True]


# ------------------------------------------------------------------------------------ layers and steps of the user's own


@pytest.mark.parametrize("kind", ["centred", "product", "regularizer", "lambda"])
def test_a_layer_that_couples_samples_is_refused(keras3, kind):
    for on_rank in keras3["layers_that_couple"]:
        error, text = on_rank[kind]
        assert error == "UnsupportedError"
        said = "couples the samples of a batch" if kind == "regularizer" else "depends on the other samples of its batch"
        assert said in text
        assert "accept_approximate=True" in text


@pytest.mark.parametrize("kind", ["nothing", "added mean", "added sum", "unreduced"])
def test_other_layers_are_as_on_one_device(keras3, kind):
    truth = keras3["layers_that_do_not"][0][kind][1]
    for ours, _ in (on_rank[kind] for on_rank in keras3["layers_that_do_not"]):
        assert len(ours) == len(truth) > 3
        for mine, theirs in zip(ours, truth, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


def test_batches_without_an_axis_of_samples_are_told_of(keras3):
    for error, messages in keras3["no_axis_of_samples"]:
        assert error
        assert len(messages) == 1
        assert "train_step can be run on 3 made-up samples, and not on 2 or 1 of them" in messages[0]
        assert "tnt_distribute_dataset=False" in messages[0]


def test_variables_of_each_ranks_samples_are_told_of_once(keras3):
    for own, of_all in keras3["variables_of_samples"]:
        assert len(own) == 1
        assert "rows" in own[0]
        assert "means" in own[0]
        assert "tnt.all_gather" in own[0]
        assert not of_all
