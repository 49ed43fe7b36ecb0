"""Training steps of the user's own, without a call or with several optimizers: n ranks compute what plain Keras does."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import BOTH, EXCHANGED
from support.launch import RANKS

pytestmark = pytest.mark.long

TOLERANCE = 1e-5
MODELS = ["Gan", "PenalisedGan", "Cycle", "Distiller", "ActorCritic", "Vae", "Siamese"]

@pytest.fixture(scope="module", params=BOTH)
def found(request):
    size, environment = request.param
    script = RANKS / "keras/step/several_optimizers.py"
    return Findings(size, script, timeout=200, env={**environment, "TNT_TIMEOUT": "60"})


@pytest.fixture(scope="module", params=EXCHANGED)
def found_by_exchanged(request):
    size, environment = request.param
    script, only = RANKS / "keras/step/several_optimizers.py", ["compiled_again", "other_kinds"]
    return Findings(size, script, timeout=200, env={**environment, "TNT_TIMEOUT": "60"}, only=only)


def as_plain(outcome):
    weights, numbers, same_bits = outcome
    assert weights <= TOLERANCE
    assert numbers <= 2 * TOLERANCE
    assert same_bits


@pytest.mark.parametrize("model", MODELS)
def test_as_plain_keras(found, model):
    for on_rank in found["equivalence"]:
        as_plain(on_rank[model])


def test_initial_weights_are_those_of_plain_keras(found):
    for on_rank in found["initial_weights"]:
        assert on_rank == {"Still": True, "Called": True}


@pytest.mark.parametrize("name", ["single_batches", "compiled_again"])
def test_other_ways(found, name):
    for on_rank in found[name]:
        as_plain(on_rank)


def test_other_optimizers(found):
    for on_rank in found["other_kinds"]:
        assert on_rank
        for outcome in on_rank.values():
            as_plain(outcome)


def test_on_other_numbers_of_ranks(found_by_exchanged):
    for on_rank in found_by_exchanged["compiled_again"]:
        as_plain(on_rank)
    for on_rank in found_by_exchanged["other_kinds"]:
        for outcome in on_rank.values():
            as_plain(outcome)


def test_the_state_of_all_optimizers_is_kept_and_rank_0s(found):
    for slots, restored, rates in found["state_of_all_optimizers"]:
        assert slots >= 12
        assert restored
        assert rates == [pytest.approx(1e-3)] * 2


def test_a_step_is_traced_once_to_make_its_variables(found):
    assert all(on_rank == [1, 2.0] for on_rank in found["variables_by_one_trace"])


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


def test_a_layer_that_no_step_uses_may_be_there_if_it_is_built(found):
    assert all(errors == [] for errors in found["an_unused_layer_that_is_built"])
