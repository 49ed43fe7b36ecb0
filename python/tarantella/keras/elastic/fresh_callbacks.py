"""Callbacks of the user's that have begun afresh in newcomers, where those of the others have come to something: a warning."""

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from tarantella import runtime
from tarantella.collectives.objects import all_gather_object
from tarantella.keras import adapter
from tarantella.keras.callback_placement import placement
from tarantella.keras.checkpoint import callback_states


def warn(callbacks: Sequence[Any], model: Any, are_newcomers: Sequence[bool]) -> None:
    """Names attributes that are the same on all ranks but those that have just joined. Collective.

    Args:
        callbacks: the user's.
        model: the one that is trained. All ranks have its state.
        are_newcomers: which ranks have just joined.
    """
    of_keras = vars(adapter.Callback())
    own = {
        name: {key: digest for key, value in vars(one).items() if (digest := _digest(value, model)) and key not in of_keras}
        for name, one in callback_states.named(callbacks)
        if placement.runs_on_all_ranks(one) and not hasattr(one, "get_state")
    }
    of_ranks = list(zip(all_gather_object(own), are_newcomers, strict=True))
    (first, *others), joined = ([found for found, is_new in of_ranks if is_new == kind] for kind in (False, True))
    for name, attributes in first.items():
        alike = [key for key, value in attributes.items() if all(one.get(name, {}).get(key) == value for one in others)]
        differing = [key for key in alike if any(one.get(name, {}).get(key) != attributes[key] for one in joined)]
        if differing:
            runtime.logger.warning(
                "--elastic: %s has begun afresh in a rank that joins, without the %s of the others: if the training depends "
                "on it, give the callback get_state() and set_state(state)",
                name.partition(" ")[0],
                ", ".join(differing),
            )


def _digest(value: Any, model: Any) -> str:
    """Identifies the value among others; empty if it has none that ranks can compare."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple, deque)):
        return f"[{','.join(_digest(one, model) for one in value)}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key!r}:{_digest(one, model)}' for key, one in value.items())}}}"
    if adapter.is_model(value):
        return "" if value is model else _digest(value.get_weights(), model)
    array = value.numpy() if hasattr(value, "numpy") else value
    if isinstance(array, (np.ndarray, np.generic)):
        return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()
    return ""
