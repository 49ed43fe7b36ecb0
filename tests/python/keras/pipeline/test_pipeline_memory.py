"""A model that is too large for the memory of one rank is trained by four."""

from __future__ import annotations

import pytest

from support.launch import RANKS, run_ranks

pytestmark = pytest.mark.long

SCRIPT = RANKS / "keras/pipeline/limited.py"
# no forks: the tests' other allocator, and memory that ranks share, are not a user's
BYTES = 14  # for each parameter: one rank needs 18, with its gradient and the two states of Adam


def test_a_model_that_is_too_large_for_one_rank() -> None:
    alone = run_ranks(1, SCRIPT, BYTES, timeout=120, forked=False)
    assert alone.code != 0, alone.said
    assert "trained" not in alone.stdout
    assert any(word in alone.said for word in ("bad_alloc", "OOM", "MemoryError", "ResourceExhausted")), alone.said
    stages = run_ranks(4, SCRIPT, BYTES, timeout=180, forked=False).good()
    assert "trained, loss" in stages.stdout
