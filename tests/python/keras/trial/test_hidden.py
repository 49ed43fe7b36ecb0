"""What the first batch hides, what a step gives its losses, what is left in Python: plain Keras' numbers, or a refusal."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

pytestmark = pytest.mark.long

SCRIPT = RANKS / "keras/trial/hidden.py"


@pytest.fixture(scope="module")
def keras3():
    return Findings(3, SCRIPT, env={"TNT_TIMEOUT": "60"}, timeout=150)


@pytest.fixture(scope="module")
def legacy():
    only = ["given_to_losses", "hidden", "left_in_python"]
    return Findings(2, SCRIPT, env={"TNT_TIMEOUT": "60", "TF_USE_LEGACY_KERAS": "1"}, timeout=150, only=only)


@pytest.fixture(params=["keras3", pytest.param("legacy", marks=needs_tf_keras)])
def found(request):
    return request.getfixturevalue(request.param)


def same_as_plain(of_ranks):
    weights, losses = of_ranks[0][1]
    for (ours, our_losses), _ in of_ranks:
        np.testing.assert_allclose(our_losses, losses, rtol=2e-5)
        for one, other in zip(ours, weights, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_what_a_step_makes_of_the_batch_for_its_loss(found):
    of_ranks = found["given_to_losses"]
    same_as_plain([balanced for balanced, _, _ in of_ranks])
    same_as_plain([extended for _, extended, _ in of_ranks])
    for _, _, refused in of_ranks:
        for kind, text in refused.values():
            assert kind == "UnsupportedError"
            assert "couples the samples of a batch" in text
        assert "not only by the loss given to compile" in refused["more than the loss"][1]


@pytest.mark.parametrize("kind", ["focal", "-100.0", "nan", "annealed"])
def test_what_later_batches_show_is_as_on_one_device(found, kind):
    same_as_plain([same[kind] for same, _ in found["hidden"]])


@pytest.mark.parametrize("kind", ["Gate", "Shuffled"])
def test_what_is_hidden_by_a_closed_gate_or_a_sort_is_refused(found, kind):
    for _, refused in found["hidden"]:
        assert refused[kind][0] == "UnsupportedError"
        assert "depends on the other samples of its batch" in refused[kind][1]


def test_a_loss_that_shuffles_its_samples_couples_them(keras3):
    assert "couples the samples of a batch" in keras3["hidden"][0][1]["loss"][1]


@pytest.mark.parametrize("where", ["step, True", "step, False", "layer, True", "layer, False"])
def test_making_variables_is_no_step(found, where):
    same_as_plain([on_rank[where] for on_rank in found["left_in_python"]])


@pytest.mark.parametrize("what", ["noise", "keys"])
def test_optimizers(keras3, what):
    """One draws noise of its own; a model is looked through for others, and has a dict whose keys cannot be written."""
    same_as_plain([on_rank[what] for on_rank in keras3["others"]])
