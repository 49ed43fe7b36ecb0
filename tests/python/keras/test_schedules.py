"""Schedules with warm-up against the formulas, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from support.findings import Findings
from support.launch import RANKS

SIZE = 2
STEPS = np.arange(100)
EPOCHS = STEPS / 7


@pytest.fixture(scope="module")
def found():
    return Findings(SIZE, RANKS / "keras/schedules.py")


def risen(peak, warmup, after):
    return np.where(warmup > EPOCHS, peak * (STEPS + 1) / (7 * max(warmup, 1)), peak * after)


def test_rates(found):
    pieces = np.select([EPOCHS < 6, EPOCHS < 9], [1.0, 0.5], 0.1)
    expected = {
        "exponential": risen(0.4, 3, 0.3 ** ((EPOCHS - 3) / 4)),
        "staircase": risen(0.4, 3, 0.3 ** np.floor((EPOCHS - 3) / 4)),
        "piecewise": risen(0.2 * SIZE, 5, pieces),  # five epochs and the job's ranks, unless it is told otherwise
        "without warm-up": 0.2 * SIZE * pieces,
    }
    for on_rank in found["by_step"]:
        assert on_rank.keys() == expected.keys()
        for name, rates in on_rank.items():
            np.testing.assert_allclose(rates, expected[name], rtol=1e-5, err_msg=name)
            assert rates[0] > 0


def test_everything_is_float32(found):
    assert found["types"] == [[["float32"], 1]] * SIZE


def test_configs(found):
    assert found["configs"] == [[True, True]] * SIZE


def test_in_a_training_and_in_files(found):
    assert found["training"] == [[True, True, SIZE]] * SIZE


def test_what_is_refused(found):
    for errors in found["refused"]:
        assert [kind for kind, _ in errors] == ["ValueError"] * 7
        for (_, text), word in zip(
            errors,
            ["steps_per_epoch=0", "base_rate=-0.1", "warmup_epochs=-1", "decay_epochs=0", "ranks=0", "ascend", "one more"],
            strict=True,
        ):
            assert word in text
