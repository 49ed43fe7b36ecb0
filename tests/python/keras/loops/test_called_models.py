"""Models that training loops call are tried on what the loop gives them."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["keras3", pytest.param("legacy", marks=needs_tf_keras)])
def found(request):
    keras = {"TF_USE_LEGACY_KERAS": "1"} if request.param == "legacy" else {}
    return Findings(2, RANKS / "keras/loops/called_models.py", env={"TNT_TIMEOUT": "60", **keras}, timeout=150)


def test_a_model_that_couples_samples_is_told_of_once(found):
    of_master = found["told"][0]
    assert len(of_master) == 10
    for name, messages in of_master.items():
        assert len(messages) == 1, name
        assert "for a sample depends on the other samples of its batch, from the layer" in messages[0]
        assert ("'text_vectorization" if name.startswith("text") else "'centred' (Centred)") in messages[0]
        assert "of 4 samples of the first batch in a training loop it differs" in messages[0]
        assert "@tnt.independent_samples" in messages[0]


def test_nothing_is_said_of_other_models(found):
    for on_rank in found["not_told"]:
        assert on_rank == [[]] * 6


def test_batch_normalization_is_said_as_for_fit(found):
    for messages in found["batch_normalization"][0]:
        assert len(messages) == 1
        assert messages[0].startswith("bn: Batch Normalization takes its statistics over the samples of each rank")


def test_a_loop_goes_on_as_if_nothing_had_been_tried(found):
    assert found["no_trace"] == [[True, True]] * 2
