"""n ranks compute what plain Keras computes on one device: each step's loss, all metrics, the weights after training."""

from __future__ import annotations

from itertools import product

import pytest

from support.catalogue import BATCH_SIZES, MODELS, OPTIMIZERS, SIZES, cases, grid

pytestmark = pytest.mark.long

ALL = [pytest.param(size, name, id=f"{name}-on-{size}") for size in SIZES for name in cases(size)]
every_case = pytest.mark.parametrize(("size", "name"), ALL)


@pytest.mark.parametrize("size", SIZES)
def test_the_grid_has_every_value_of_every_dimension(size):
    models, optimizers, batch_sizes = (set(column) for column in zip(*(name.split("-") for name in grid(size)), strict=True))
    assert (models, optimizers, batch_sizes) == (set(MODELS), set(OPTIMIZERS), set(map(str, BATCH_SIZES)))


def test_every_model_meets_every_optimizer():
    pairs = [tuple(name.split("-")[:2]) for size in SIZES for name in grid(size)]
    assert sorted(pairs) == sorted(product(MODELS, OPTIMIZERS))


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


FUSED = ["mixed_dtypes-rmsprop-61", "cnn-adamw-61"]


def test_the_fused_cases_are_in_the_grid():
    assert set(FUSED) <= set(grid(2))


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("threshold", ["0", "0.2"])
def test_buckets_do_not_change_a_bit(jobs, threshold, name):
    """Without fusion, and in buckets of 200 bytes: sums are taken element by element, in one tree over ranks."""
    others = jobs.ranks(2, FUSED, ["--fusion-threshold", threshold])
    assert others.digests(name) == jobs.case(2, name).digests(name)
