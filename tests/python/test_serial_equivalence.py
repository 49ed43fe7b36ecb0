"""n ranks compute what plain Keras computes on one device: each step's loss, all metrics, the weights after training."""

from __future__ import annotations

import numpy as np
import pytest

from support.catalogue import BATCH_SIZES, MODELS, OPTIMIZERS, SIZES, cases, expected, grid

ALL = [pytest.param(size, name, id=f"{name}-on-{size}") for size in SIZES for name in cases(size)]
every_case = pytest.mark.parametrize(("size", "name"), ALL)


@pytest.mark.parametrize("size", SIZES)
def test_the_grid_has_every_value_of_every_dimension(size):
    models, optimizers, batch_sizes = (set(column) for column in zip(*(name.split("-") for name in grid(size)), strict=True))
    assert (models, optimizers, batch_sizes) == (set(MODELS), set(OPTIMIZERS), set(map(str, BATCH_SIZES)))


@every_case
def test_all_ranks_have_the_same_bits(jobs, size, name):
    digests = jobs.case(size, name).digests(name)
    assert len(digests) == size
    assert len(set(digests)) == 1, digests


@every_case
def test_losses_and_metrics(jobs, size, name):
    """Of each step where a case keeps them; of each epoch, of validation, evaluate and predict."""
    ours, truth = jobs.case(size, name).arrays(name), jobs.serial().arrays(name)
    assert ours.keys() == truth.keys()
    for key in truth:
        if "weights" not in key.split("/"):
            np.testing.assert_allclose(ours[key], truth[key], rtol=expected(name).losses, atol=1e-6, err_msg=key)


@every_case
def test_weights(jobs, size, name):
    ours, truth = jobs.case(size, name).arrays(name), jobs.serial().arrays(name)
    keys = [key for key in truth if "weights" in key.split("/")]
    assert keys
    for key in keys:
        assert np.isfinite(ours[key]).all(), key
        np.testing.assert_allclose(ours[key], truth[key], rtol=0, atol=expected(name).weights, err_msg=key)


FUSED = ["mixed_dtypes-adamw-64", "cnn-sgd-64"]


def test_the_fused_cases_are_in_the_grid():
    assert set(FUSED) <= set(grid(2))


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("threshold", ["0", "0.2"])
def test_buckets_do_not_change_a_bit(jobs, threshold, name):
    """Without fusion, and in buckets of 200 bytes: sums are taken element by element, in the order of the ranks."""
    others = jobs.ranks(2, FUSED, ["--fusion-threshold", threshold])
    assert others.digests(name) == jobs.case(2, name).digests(name)
