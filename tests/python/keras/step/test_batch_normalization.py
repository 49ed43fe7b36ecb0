"""BatchNormalization on more ranks than samples: who has no sample changes no statistics and no metrics."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE, BATCH, EPOCHS, MOMENTUM = 4, 3, 2, 0.8


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/step/batch_normalization.py")


def expected_statistics(x):
    """What each rank's own samples make of mean and variance; the ranks' mean of it at the end of each epoch."""
    mean, variance = np.zeros((SIZE, 2)), np.ones((SIZE, 2))
    for _ in range(EPOCHS):
        for begin in range(0, len(x), BATCH):
            for rank in range(SIZE):
                part = x[begin : begin + BATCH][rank::SIZE]
                if len(part):
                    mean[rank] = MOMENTUM * mean[rank] + (1 - MOMENTUM) * part.mean(0)
                    variance[rank] = MOMENTUM * variance[rank] + (1 - MOMENTUM) * part.var(0)
        mean[:], variance[:] = mean.mean(0), variance.mean(0)
    return mean[0], variance[0]


def test_statistics_are_of_the_samples(found):
    mean, variance = expected_statistics(np.array(found["data"][0]))
    for on_rank in found["statistics"]:
        np.testing.assert_allclose(on_rank[0], mean, rtol=1e-5)
        np.testing.assert_allclose(on_rank[1], variance, rtol=1e-5)


def test_ranks_have_the_same_bits(found):
    weights = found["trained_weights"]
    assert all(on_rank == weights[0] for on_rank in weights)
    assert all(np.isfinite(w).all() for w in weights[0])


def test_every_sample_counts_once_in_the_metrics(found):
    for *means, truth in found["mean_target"]:
        np.testing.assert_allclose(means, truth, rtol=1e-6)


def test_evaluation_is_that_of_one_device(found):
    for together, alone in found["evaluation"]:
        assert together == pytest.approx(alone, rel=1e-5)
    assert len({str(together) for together, _ in found["evaluation"]}) == 1
