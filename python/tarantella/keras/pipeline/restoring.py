"""Gives the ranks of a pipeline the values of a whole model that rank 0 has: to each what it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from tarantella import collectives
from tarantella.keras import adapter
from tarantella.keras.checkpoint import state
from tarantella.keras.checkpoint.state import Stored
from tarantella.keras.pipeline.weights import Holdings, by_key
from tarantella.keras.reduction.weights import state_keys

OPTIMIZER = "optimizer"  # the group of its variables


def restore(model: Any, holdings: Holdings, stored: Stored | None, common_seed: bool) -> None:
    """Gives the ranks the values of the variables that they hold, one by one. Collective.

    Args:
        model: the Keras model.
        stored: None but on rank 0.
        common_seed: whether the state of Keras' common random generator was stored.
    """
    for name, variables in state.groups_of(model, common_seed).items():
        if name == OPTIMIZER:
            _restore_optimizer(adapter.optimizer_of(model), stored)
            continue
        for place, variable in enumerate(variables):
            inner = adapter.unwrap(variable)
            empty = np.zeros(tuple(variable.shape), inner.dtype.as_numpy_dtype)
            value = collectives.broadcast(empty if stored is None else np.asarray(stored[name][place]["value"]), 0)
            if holdings.is_here(variable):
                inner.assign(value)


def _restore_optimizer(optimizer: Any, stored: Stored | None) -> None:
    own = by_key(optimizer)
    items = [] if stored is None else stored[OPTIMIZER]
    for place, key in enumerate(collectives.broadcast_object(state_keys([item["path"] for item in items]))):
        value = collectives.broadcast_object(None if stored is None else np.asarray(items[place]["value"]))
        if key in own:
            adapter.unwrap(own[key]).assign(value)
