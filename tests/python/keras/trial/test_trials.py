"""Losses and training steps that are not means over samples: summed, refused, or computed from the samples of all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

pytestmark = pytest.mark.long


SCRIPT = RANKS / "keras/trial/trials.py"
SHORT = {"TNT_TIMEOUT": "60"}
LEGACY_TOO = ["summed", "refused", "gathered_by_itself", "added", "added_and_coupled", "evaluated", "accepted", "in_16_bits"]
LEGACY_TOO += ["single_batches", "several_outputs", "counts", "inference", "rare", "own_metrics"]


@pytest.fixture(scope="module")
def keras3():
    return Findings(2, SCRIPT, env=SHORT, timeout=150)


@pytest.fixture(scope="module")
def legacy():
    return Findings(2, SCRIPT, env={**SHORT, "TF_USE_LEGACY_KERAS": "1"}, timeout=150, only=LEGACY_TOO)


@pytest.fixture(scope="module")
def on_three():
    return Findings(3, SCRIPT, env=SHORT, timeout=150, only=["refused", "gathered_by_itself", "one_sample_each"])


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
    "name",
    [
        *("reduce_sum", "tensordot", "vector in a step", "sum in a step", "sum in compute_loss", "ratio in a step"),
        "mean in a step",
    ],
)
def test_a_sum_is_summed(found, name):
    same_as_serial(found["summed"], name)


def test_on_another_number_of_ranks(on_three):
    for on_rank in on_three["refused"]:
        assert len(on_rank) == 4
        for kind, text in on_rank.values():
            assert kind == "UnsupportedError"
            assert "couples the samples of a batch" in text
    for name in ("largest", "contrastive"):
        gathered(on_three["gathered_by_itself"], name)


def gathered(of_ranks, name):
    """A loss that couples samples: it is that of one device, and rank 0 says once what it costs."""
    same_as_serial([{name: on_rank[name][:2]} for on_rank in of_ranks], name)
    (said,) = of_ranks[0][name][2]
    assert "couples the samples of a batch: of 7 samples of the first batch it is" in said
    assert "weighted by samples" in said
    assert "bytes for it in a step" in said
    assert "across_ranks=True" in said


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_loss_that_a_layer_adds_is_summed_or_not(found, name):
    same_as_serial(found["added"], name)


def test_a_loss_that_a_layer_adds_and_couples_samples_is_refused(found):
    for kind, text in found["added_and_coupled"]:
        assert kind == "UnsupportedError"
        assert "adds by add_loss couples the samples of a batch: of 7 samples of the first batch it is" in text
        assert "accept_approximate=True" in text


def test_a_model_whose_output_couples_samples_is_refused(keras3):
    for on_rank in keras3["outputs_that_couple"]:
        for kind, text in on_rank:
            assert kind == "UnsupportedError"
            assert "for a sample depends on the other samples of its batch, from the layer" in text
            assert "samples of the first batch in training it differs by" in text
            assert "accept_approximate=True" in text


@pytest.mark.parametrize("name", ["largest", "median", "contrastive", "paired"])
def test_a_loss_that_couples_samples_is_gathered(found, name):
    gathered(found["gathered_by_itself"], name)


def test_a_mean_over_words_is_that_of_all_ranks(found):
    same_as_serial([{"masked": on_rank["masked"][:2]} for on_rank in found["gathered_by_itself"]], "masked")


def test_what_is_declared_is_not_tried(keras3):
    for of_model, of_loss, (kind, text) in keras3["declared"]:
        assert not of_model
        assert not of_loss
        assert kind == "InvalidArgumentError"
        assert "'independent'" in text


def test_mixed_precision_is_compared(found):
    coupled, independent = found["in_16_bits"][0]
    assert len(coupled) == 1
    assert "the loss 'largest' couples" in coupled[0]
    assert not independent


@pytest.mark.parametrize("size", ["keras3", "on_three"])
def test_ranks_with_one_sample_borrow(request, size):
    for ours, truth, messages in request.getfixturevalue(size)["one_sample_each"]:
        np.testing.assert_allclose(ours, truth, rtol=2e-5)
        assert not messages


def test_a_later_batch_is_tried_too(keras3):
    for ((kind, text),) in keras3["later_epochs"]:
        assert kind == "UnsupportedError"
        assert "depends on the other samples of its batch" in text


@pytest.mark.parametrize("name", ["step", "compute_loss", "shuffled"])
def test_a_step_that_couples_samples_is_refused(found, name):
    for on_rank in found["refused"]:
        kind, text = on_rank[name]
        assert kind == "UnsupportedError"
        assert "couples the samples of a batch: on samples of the first batch the gradient of" in text
        assert "accept_approximate=True" in text


def test_the_refusal_says_what_across_ranks_does_not_cover(found):
    for on_rank in found["refused"]:
        assert "across_ranks=True is for losses given to compile, and not for this" in on_rank["across_ranks"][1]
        assert "across_ranks" not in on_rank["compute_loss"][1]


def test_evaluate_gathers_alike(found):
    for ours, truth in found["evaluated"]:
        assert ours == pytest.approx(truth, rel=1e-5)


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
        assert on_rank == []


def test_what_cannot_be_compared_is_said_once(keras3):
    noise, noise_in_a_step, of_gamma, gathers, zero = keras3["not_compared"][0]
    assert [len(said) for said in (noise, noise_in_a_step, of_gamma, zero)] == [1, 1, 2, 1]
    assert "a loss draws random numbers" in noise[0]
    assert "samples='independent'" in noise[0]
    assert "it draws random numbers" in noise_in_a_step[0]
    assert of_gamma[0].startswith("train_step could")
    assert of_gamma[1].startswith("test_step could")
    assert "it draws random numbers by RandomGamma" in of_gamma[0]
    assert "it calls tnt.all_gather" in gathers[0]
    assert "it is zero or not finite" in zero[0]


def test_random_numbers_forbid_no_comparison(keras3):
    for of_loss, of_step in keras3["compared_without_noise"]:
        assert len(of_loss) == len(of_step) == 1
        assert "the loss 'noisy_sum' is a sum" in of_loss[0]
        assert "the gradients of train_step are sums" in of_step[0]


def test_all_losses_that_couple_samples_are_named(found):
    first, third = found["several_outputs"][0]
    assert "the loss 'largest' of the output 'first' couples" in first
    assert "the loss 'median' of the output 'third' couples" in third


def test_a_step_gets_a_single_batch_as_from_keras(found):
    for on_rank in found["single_batches"]:
        ours, plain = on_rank[:4], on_rank[4:]
        assert ours == plain
        assert sum(map(len, ours)) == 2  # one of the two numbers of parts is wrong, in training and in the test


def test_a_trial_leaves_no_trace(keras3):
    for on_rank in keras3["no_trace"]:
        assert on_rank == [True, True, True]


@pytest.mark.parametrize("kind", ["masked_mean", "masked_ratio", "hardest", "balanced"])
def test_what_the_first_samples_do_not_show_is_as_on_one_device(found, kind):
    truth = found["rare"][0][kind][1]
    for ours, _ in (on_rank[kind] for on_rank in found["rare"]):
        assert len(ours) == len(truth) == 6
        for mine, theirs in zip(ours, truth, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["number", "list", "made later", "variable"])
def test_a_trial_is_no_step_that_counts(found, kind):
    truth = found["counts"][0][kind][1]
    for ours, _, said in (on_rank[kind] for on_rank in found["counts"]):
        assert len(ours) == len(truth) >= 4
        assert said == []
        for mine, theirs in zip(ours, truth, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


def test_what_inference_keeps_is_of_the_whole_batch(found):
    truth = found["inference"][0][2]
    calls, samples, *_ = truth[-1]
    assert calls == 11 and samples == 69
    for ours, in_shards, _, warnings in found["inference"]:
        np.testing.assert_allclose(ours, truth, rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(in_shards, truth, rtol=2e-5, atol=1e-6)
        assert len(warnings) == 2  # of tests and of predictions
        assert all("largest" in warning for warning in warnings)


# ---------------------------------------------------------------------------------------------- metrics of the user's own


def said_of(of_ranks, name):
    """All numbers are those of plain Keras but the deviation, which ranks cannot make of theirs; rank 0's messages."""
    truth = of_ranks[0][name][1]
    assert len(truth) > 5
    for ours, _, _ in (on_rank[name] for on_rank in of_ranks):
        assert ours.keys() == truth.keys()
        for key in truth:
            if "deviation" not in key:
                np.testing.assert_allclose(ours[key], truth[key], rtol=2e-5, atol=1e-6, err_msg=key)
    return of_ranks[0][name][2]


@pytest.mark.parametrize("name", ["state", "states", "state in a step", "compute_metrics"])
def test_metrics_are_of_all_samples(found, name):
    assert said_of(found["own_metrics"], name) == []


@pytest.mark.parametrize("name", ["unchanged maximum", "unchanged"])
def test_a_metric_whose_states_are_not_known_to_be_sums_sees_all_samples(found, name):
    (message,) = said_of(found["own_metrics"], name)
    assert "the metric 'found' is computed from the samples of all ranks" in message


def test_a_log_of_compute_metrics_that_is_neither_is_named(found):
    in_training, evaluated = said_of(found["own_metrics"], "deviation")
    assert "train_step: the log 'deviation': neither a mean nor a sum over samples" in in_training
    assert "test_step" in evaluated


def test_shards_cannot_gather_what_a_metric_sees(keras3):
    (message,) = said_of(keras3["own_metrics"], "in shards")
    assert "the metric 'found': not all of its states change on the first batch" in message


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
        assert "train_step can be run on 2 samples of the first batch, and not on 1 or 1 of them" in messages[0]
        assert "tnt_distribute_dataset=False" in messages[0]


@pytest.mark.parametrize("kind", ["means", "sums", "gathered"])
def test_what_a_step_keeps_is_of_the_whole_batch(keras3, kind):
    truth = keras3["what_a_step_keeps"][0][kind][1]
    for ours, _ in (on_rank[kind] for on_rank in keras3["what_a_step_keeps"]):
        assert len(ours) == len(truth) > 5
        for mine, theirs in zip(ours, truth, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=1e-6)


def test_what_ranks_cannot_keep_is_refused(keras3):
    for (kind, text), accepted in keras3["what_ranks_cannot_keep"]:
        assert kind == "UnsupportedError"
        assert "the training step changes keeps/rows by the samples of a batch, neither by their mean nor by a sum" in text
        assert "tnt.all_gather" in text
        assert len([message for message in accepted if "accept_approximate=True: the mean over ranks is taken" in message]) == 1
