"""Steps that compute with their gradients and metrics that couple samples: n ranks compute what plain Keras does."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.front_ends import BOTH
from support.launch import RANKS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=BOTH)
def found(request):
    size, environment = request.param
    script = RANKS / "keras/trial/own_gradients.py"
    return Findings(size, script, timeout=150, env={**environment, "TNT_TIMEOUT": "60"})


def same_as_serial(on_rank):
    ours, truth = on_rank
    assert ours.keys() == truth.keys()
    for name, values in truth.items():
        np.testing.assert_allclose(ours[name], values, rtol=2e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["penalty", "clip by value", "clip by norm", "sharpness", "no optimizer", "accumulation"])
def test_a_step_computes_with_the_gradients_of_the_batch(found, kind):
    for on_rank in found["gradients"]:
        same_as_serial(on_rank[kind])


def test_it_is_said_once(found):
    for said in found["what_is_said"]:
        assert said == ["train_step computes with its gradients: its tapes give those of the whole batch"]


def test_what_does_not_go_together_is_refused(found):
    for on_rank in found["does_not_go_together"]:
        for kind, text in on_rank.values():
            assert kind == "UnsupportedError"
            assert "computes with its gradients before its optimizer gets them" in text
            assert "clipnorm" in text


def test_noise_in_gradients_is_the_same_on_all_ranks(found):
    assert found["noise_in_gradients"] == [True] * len(found["noise_in_gradients"])


def test_metrics_that_couple_samples(found):
    for on_rank in found["metrics"]:
        assert {"rmse", "of_all", "f1", "of_batches", "mse", "val_f1"} <= on_rank[1].keys()
        same_as_serial(on_rank)


def test_a_rank_without_samples_changes_what_needs_none(found):
    for models in found["state_without_samples"]:
        for on_rank in models:
            same_as_serial(on_rank)


def test_stateful_layers_are_refused(found):
    for kind, text in found["stateful_layers"]:
        assert kind == "UnsupportedError"
        assert "memory is stateful" in text
        assert "stateful=False" in text
