"""Weights that rank 0 gives to the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tarantella import collectives, generations, runtime
from tarantella.errors import PeerLostError
from tarantella.keras.reduction import weights


def test_a_rank_of_an_elastic_job_takes_all_or_none(monkeypatch: pytest.MonkeyPatch):
    """They would be of two ranks if the one that gives them is lost, and another one gives its own."""
    given: list[Any] = [np.ones(2), PeerLostError("rank 0 died")]

    def broadcast(own: Any, root: int) -> Any:
        found = given.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(generations, "is_elastic", lambda: True)
    monkeypatch.setattr(collectives, "broadcast", broadcast)
    monkeypatch.setattr(runtime, "get_size", lambda: 2)
    monkeypatch.setattr(runtime, "get_rank", lambda: 1)
    variables = [tf.Variable([0.0, 0.0]) for _ in range(2)]
    with pytest.raises(PeerLostError):
        weights.broadcast(variables)
    np.testing.assert_array_equal(variables, np.zeros((2, 2)))
    given[:] = [np.ones(2), np.full(2, 5.0)]
    weights.broadcast(variables)
    np.testing.assert_array_equal(variables, [[1, 1], [5, 5]])
