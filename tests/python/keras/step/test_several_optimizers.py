"""Training steps of the user's own, without a call or with several optimizers: n ranks compute what plain Keras does."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

pytestmark = pytest.mark.long

TOLERANCE = 1e-5
SCRIPT = RANKS / "keras/step/several_optimizers.py"
LEGACY_TOO = ["equivalence", "compiled_again", "other_kinds", "state_of_all_optimizers", "refused"]
MODELS = ["Cycle", "Distiller", "ActorCritic", "Vae", "Siamese"]


@pytest.fixture(scope="module")
def keras3():
    return Findings(2, SCRIPT, timeout=200, env={"TNT_TIMEOUT": "60"})


@pytest.fixture(scope="module")
def legacy():
    return Findings(2, SCRIPT, timeout=200, env={"TF_USE_LEGACY_KERAS": "1", "TNT_TIMEOUT": "60"}, only=LEGACY_TOO)


@pytest.fixture(scope="module")
def on_three():
    return Findings(3, SCRIPT, timeout=200, env={"TNT_TIMEOUT": "60"}, only=["compiled_again"])


@pytest.fixture(params=["keras3", pytest.param("legacy", marks=needs_tf_keras)])
def found(request):
    return request.getfixturevalue(request.param)


def as_plain(outcome):
    weights, numbers, same_bits = outcome
    assert weights <= TOLERANCE
    assert numbers <= 2 * TOLERANCE
    assert same_bits


@pytest.mark.parametrize("model", MODELS)
def test_as_plain_keras(found, model):
    for on_rank in found["equivalence"]:
        as_plain(on_rank[model])


def test_initial_weights_are_those_of_plain_keras(keras3):
    for on_rank in keras3["initial_weights"]:
        assert on_rank == {"Still": True, "Called": True}


def test_single_batches(keras3):
    for on_rank in keras3["single_batches"]:
        as_plain(on_rank)


def test_compiled_again(found):
    for on_rank in found["compiled_again"]:
        as_plain(on_rank)


def test_on_another_number_of_ranks(on_three):
    for on_rank in on_three["compiled_again"]:
        as_plain(on_rank)


def test_other_optimizers(found):
    for on_rank in found["other_kinds"]:
        assert on_rank
        for outcome in on_rank.values():
            as_plain(outcome)


def test_the_state_of_all_optimizers_is_kept_and_rank_0s(found):
    for slots, restored, rates in found["state_of_all_optimizers"]:
        assert slots >= 12
        assert restored
        assert rates == [pytest.approx(1e-3)] * 2


def test_a_step_is_traced_once_to_make_its_variables(keras3):
    assert all(on_rank == [1, 2.0] for on_rank in keras3["variables_by_one_trace"])


REFUSED = {
    "WithUnused": ["UnsupportedError", "'unused'", "has no weights yet", "its train_step does not use", "give it an Input"],
    "Assigning": ["TarantellaError", "the first step did not reduce the gradient of", "optimizer that the model holds"],
    "Broken": ["KeyError", "something of the user's own"],
    "Eager": ["UnsupportedError", "cannot be traced", "on a batch"],
    "Wrapped": ["UnsupportedError", "own['critic'] of the model", "give the model the plain optimizer"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(found, name):
    for on_rank in found["refused"]:
        kind, text = on_rank[name]
        assert kind == REFUSED[name][0], text
        for words in REFUSED[name][1:]:
            assert words in text


def test_a_layer_that_no_step_uses_may_be_there_if_it_is_built(keras3):
    assert all(errors == [] for errors in keras3["an_unused_layer_that_is_built"])
