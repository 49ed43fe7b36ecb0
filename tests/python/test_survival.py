"""A training that is killed at random moments ends with the right bits: a few runs of the soak (`tests/soak/survival.py`)."""

from __future__ import annotations

import inspect

import pytest

from survival import survive


def _why_not() -> str:
    import tarantella as tnt

    if not hasattr(tnt.callbacks, "Checkpoint"):
        return "no tnt.callbacks.Checkpoint in this version"
    if "reproducible" not in inspect.signature(tnt.Model.__new__).parameters:
        return "no reproducible training in this version"
    return ""


def test_killed_trainings_end_with_the_right_bits():
    reason = _why_not()
    if reason:
        pytest.skip(reason)
    told: list[str] = []
    assert survive(runs=2, seed=3, ranks=(2, 1), kills=1, epochs=2, say=told.append) == 0, "\n".join(told)
