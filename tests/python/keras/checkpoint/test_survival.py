"""A training that is killed at random moments ends with the right bits: a few runs of the soak (`tests/soak/survival.py`)."""

from __future__ import annotations

import pytest

from survival import survive

pytestmark = pytest.mark.long


@pytest.mark.timeout(1800)
def test_killed_trainings_end_with_the_right_bits():
    told: list[str] = []
    assert survive(runs=2, seed=3, ranks=(2, 1), kills=1, epochs=2, say=told.append) == 0, "\n".join(told)
