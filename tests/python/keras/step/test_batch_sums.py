"""Losses that are made of sums over a batch, as masked losses of tokens: the same as in plain Keras, on two and three ranks."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

SCRIPT = RANKS / "keras/step/batch_sums.py"
CLOSE = 2e-5


@pytest.fixture(scope="module")
def keras3():
    return Findings(3, SCRIPT)


@pytest.fixture(scope="module")
def legacy():
    return Findings(2, SCRIPT, env={"TF_USE_LEGACY_KERAS": "1"})


@pytest.fixture(params=["keras3", pytest.param("legacy", marks=needs_tf_keras)])
def found(request):
    return request.getfixturevalue(request.param)


def test_a_compiled_loss(found):
    of_losses = found["compiled"][0]
    assert len(of_losses) == 4
    for name, errors in of_losses.items():
        assert max(errors.values()) < CLOSE, (name, errors)


@pytest.mark.parametrize("what", ["scaled", "own", "added", "own_steps_of_tokens", "called"])
def test_other_losses(found, what):
    """One whose gradients are scaled, of compute_loss, that a layer adds, of steps of one's own, in the model's call."""
    errors = found[what][0]
    assert max(errors.values()) < CLOSE, errors


def test_steps_of_the_users_own(found):
    """A step that takes the ratio of sums itself, and updates twice; and one that clips its gradients."""
    of_steps = found["steps"][0]
    assert len(of_steps) == 2
    for name, errors in of_steps.items():
        assert errors.keys() == {"loss", "right", "val_loss", "val_right", "weights"}
        assert max(errors.values()) < CLOSE, (name, errors)


def test_it_is_said(found):
    for messages in found["said"]:
        assert "the loss 'guarded' is made of sums over samples: ranks add up each of them" in messages


def test_a_maximum_is_no_sum(found):
    """It is computed from the samples of all ranks."""
    errors = found["gathered"][0]
    assert max(errors.values()) < CLOSE, errors
    for messages in found["said"]:
        assert not any("'largest'" in message for message in messages)
