"""n ranks compute what plain Keras computes on one device: each step's loss, all metrics, the weights after training."""

from __future__ import annotations

import re
from itertools import chain, product

import pytest

from support.catalogue import (
    BATCH_SIZES,
    GRID,
    LEGACY,
    MODELS,
    OPTIMIZERS,
    SIZES,
    SPECIAL,
    VERSIONS,
    VERSIONS_KERAS_3,
    VERSIONS_LEGACY,
    cases,
)
from support.outcomes import SCRIPT

pytestmark = pytest.mark.long

ALL = [pytest.param(size, name, id=f"{name}-on-{size}") for size in SIZES for name in cases(size)]
every_case = pytest.mark.parametrize(("size", "name"), ALL)


def pairs_on(*sizes):
    return [tuple(name.split("-")) for size in sizes for name in GRID[size]]


@pytest.mark.parametrize("size", [2, 3])
def test_the_grid_has_every_optimizer_and_batch_size(size):
    _, optimizers, batch_sizes = zip(*pairs_on(size), strict=True)
    assert set(optimizers) == set(OPTIMIZERS)
    assert set(batch_sizes) == set(map(str, BATCH_SIZES))


def test_the_grid_has_every_model():
    assert {model for model, _, _ in pairs_on(2, 3)} == set(MODELS)


def test_sparse_gradients_and_mixed_types_meet_every_optimizer():
    assert set(product(("embedding", "mixed_dtypes"), OPTIMIZERS)) <= {names[:2] for names in pairs_on(2, 3, 4)}


def test_every_special_case_is_run():
    made = [re.findall(r"^@case\ndef (\w+)", file.read_text(), re.MULTILINE) for file in SCRIPT.parent.glob("special_*.py")]
    special = {name for name in (*SPECIAL, *LEGACY) if "-" not in name}
    assert set(chain.from_iterable(made)) == special


def test_the_cases_of_each_version_are_there():
    grid = {"-".join(parts) for parts in product(MODELS, OPTIMIZERS, map(str, BATCH_SIZES))}
    assert {*VERSIONS, *VERSIONS_KERAS_3} <= grid | SPECIAL.keys()
    assert {*VERSIONS, *VERSIONS_LEGACY} <= grid | LEGACY.keys()


@every_case
def test_all_ranks_have_the_same_bits(jobs, size, name):
    jobs.same_bits(size, name)


@every_case
def test_losses_and_metrics(jobs, size, name):
    """Of each step where a case keeps them; of each epoch, of validation, evaluate and predict."""
    jobs.same_losses_and_metrics(size, name)


@every_case
def test_weights(jobs, size, name):
    jobs.same_weights(size, name)


FUSED = {"mixed_dtypes-rmsprop-61": "0", "cnn-adamw-61": "0.2"}


@pytest.mark.parametrize("name", FUSED)
def test_buckets_do_not_change_a_bit(jobs, name):
    """Without fusion, and in buckets of 200 bytes: sums are taken element by element, in one tree over ranks."""
    others = jobs.ranks(2, [name], ["--fusion-threshold", FUSED[name]])
    assert others.digests(name) == jobs.case(2, name).digests(name)
