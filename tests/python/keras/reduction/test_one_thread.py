"""TensorFlow with a single inter-op thread: an op of ours that waits for other ranks must not hold up what they wait for."""

from __future__ import annotations

import json

from support.launch import RANKS, run_ranks


def test_one_executor_thread_is_enough(tmp_path):
    """Gradients and metrics have reducers of their own: every rank has to wait for them in the same order."""
    env = {"TF_NUM_INTEROP_THREADS": "1", "TNT_TIMEOUT": "60"}
    options = ["--fusion-threshold", 100]
    run_ranks(2, RANKS / "keras/buckets.py", tmp_path, 64, 30, env=env, launcher_options=options).good()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert len(first["buckets"]) >= 4
