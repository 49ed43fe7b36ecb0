"""Random numbers inside a step: each rank draws its own, generators stay alike, and rank 0 draws what serial Keras does."""

from __future__ import annotations

import pytest

from support.findings import Findings
from support.front_ends import needs_tf_keras
from support.launch import RANKS

pytestmark = pytest.mark.long

SCRIPT = RANKS / "keras/step/noise.py"
ON_THREE = ["steps", "dropout_gradients", "states", "the_same_noise"]  # for all else two ranks are enough
INDEPENDENT = 0.25  # 400 numbers: five standard deviations


@pytest.fixture(
    scope="module",
    params=[(2, ""), (3, ""), pytest.param((2, "1"), marks=needs_tf_keras)],
    ids=["2 ranks", "3 ranks", "legacy Keras"],
)
def job(request):
    size, of_legacy = request.param
    environment = {"TF_USE_LEGACY_KERAS": of_legacy} if of_legacy else None
    return size, of_legacy, Findings(size, SCRIPT, timeout=120, env=environment, only=ON_THREE if size == 3 else [])


@pytest.fixture
def found(job):
    return job[2]


@pytest.fixture
def on_two(job):
    if job[0] == 3:
        pytest.skip("2 ranks are enough")
    return job[2]


def assert_independent(likenesses, count):
    assert len(likenesses) >= count
    assert {name: likeness for name, likeness in likenesses.items() if not likeness < INDEPENDENT} == {}


def test_every_way_to_draw_differs_by_rank(on_two):
    assert_independent(on_two["sources"][0]["likeness"], 40)


def test_rank_0_draws_what_is_drawn_outside(on_two):
    first, other = on_two["sources"]
    assert len(first["compared"]) >= 30
    assert first["as outside"] == first["compared"]
    assert other["as outside"] == []


def test_functions_traced_before_are_traced_again(on_two):
    assert on_two["sources"][0]["warnings"] == []


@pytest.mark.parametrize("when", ["train", "test", "predict", "eager"])
def test_steps_of_all_kinds(found, when):
    assert_independent(found["steps"][0][when], 7)


def test_the_gradient_of_dropout_is_as_exact_as_in_serial(found, job):
    of_ranks = found["dropout_gradients"]
    assert all(of_rank == of_ranks[0] for of_rank in of_ranks)
    numbers = of_ranks[0]
    expected = 1 / 12  # of a mean of 12 masks that are 0 or 2; with the same masks on n ranks, n times as much
    assert {"ours", "serial"} <= set(numbers)
    assert ("xla" in numbers, "reproducible" in numbers) == (not job[1], job[0] == 2)
    for kind in {"ours", "serial", "xla", "reproducible"} & set(numbers):
        mean, variance = numbers[kind]
        assert mean == pytest.approx(1, abs=0.02), kind
        assert variance == pytest.approx(expected, rel=0.1), kind
    assert numbers["repeated"] == [0]
    assert numbers["steps alike"][0] < 0.1


def test_generators_stay_alike(found):
    first, *others = found["states"]
    assert len(first) == 2
    assert all(other == first for other in others)


def test_noise_that_is_to_be_the_same(found):
    assert found["the_same_noise"][0] == {"apart": [], "alike": []}


def test_what_cannot_be_kept_the_same_is_refused(on_two, job):
    for hidden, *reproducible in on_two["refused_noise"]:
        assert hidden[0] == "UnsupportedError"
        assert "RandomStandardNormal in an optimizer, or inside tnt.same_noise()" in hidden[1]
        assert len(reproducible) == (job[:2] == (2, ""))
        for kind, text in reproducible:
            assert kind == "UnsupportedError"
            assert "tnt.same_noise() in a reproducible model" in text


def test_initial_values_are_the_same(on_two):
    assert all(of_rank == [[0.0, 0.0]] for of_rank in on_two["initial_values"])


def test_threads_that_make_batches_draw_as_before(on_two):
    assert all(on_two["other_threads"])


def test_random_data_is_the_same(on_two):
    losses = on_two["random_data"]
    assert len(set(losses)) == 1
    assert losses[0] > 0


def test_a_loop_of_ones_own(on_two):
    numbers = on_two["custom_loop"][0]
    assert numbers["own"] < INDEPENDENT
    assert numbers["common"] == pytest.approx(1)


def test_functions_from_files_are_named_in_a_warning(on_two):
    first, *others = on_two["functions_from_files"]
    assert len(first) == 1
    assert "StatelessRandomNormalV2 is the same on all ranks" in first[0]
    assert others == [[]] * len(others)


def test_the_log_names_the_layers_that_draw(on_two):
    for said in on_two["layers_that_draw"]:
        assert len(said) == 1
        assert said[0].endswith("as with another seed, in 'inner' (Dropout), 'outer' (GaussianNoise)")
