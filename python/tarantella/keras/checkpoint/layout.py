"""The layout of a checkpoint of `fit`, checked before use: a file with a right checksum may be no checkpoint."""

from typing import Any

import numpy as np

from tarantella.keras.checkpoint import randomness
from tarantella.keras.checkpoint.format import DamagedError
from tarantella.keras.checkpoint.parts import StoredArray

_COUNT, _SEED = range(1 << 63), range(-(1 << 63), 1 << 63)
_RANDOM = {"python": list, "numpy": dict, "tensorflow": {"seed": (_SEED, None), "operations": (list, None)}}
_KINDS: dict[str, Any] = {  # as `CheckpointSession` writes them
    "position": {"epoch": _COUNT, "step": _COUNT, "steps_done": _COUNT},
    "stopped": bool,
    "fit": {"initial_epoch": _COUNT, "steps": (_COUNT, None), "seed": (_SEED, None), "alike": bool, "random": _RANDOM},
    "batches": list,
    "random": _RANDOM,
    "history": {"epochs": list, "logs": dict},
    "callbacks": dict,
    "common_seed": bool,
    "variables": {"weights": list, "common seed": list},
}


def check(tree: dict[str, Any]) -> None:
    """Raises `DamagedError` if something is missing or of another kind."""
    _check(tree, _KINDS, "")
    if len(tree["position"]) != len(_KINDS["position"]):
        raise DamagedError(f"position has more than {', '.join(_KINDS['position'])}")
    if len(tree["batches"]) != 2 or not all(isinstance(fingerprint, int) for fingerprint in tree["batches"]):
        raise DamagedError("batches are no two fingerprints")
    for name, numbers in tree["history"]["logs"].items():
        if not isinstance(numbers, list):
            raise DamagedError(f"history.logs.{name} is a {type(numbers).__name__}")
    for name, state in tree["callbacks"].items():
        kinds = {"remembered": dict, "size": _COUNT}
        if not isinstance(state, dict) or not all(_fits(state[key], kinds[key]) for key in kinds if key in state):
            raise DamagedError(f"callbacks.{name} is no state")
    for group, items in tree["variables"].items():
        for number, item in enumerate(items if isinstance(items, list) else [None]):
            if not isinstance(item, dict) or not isinstance(item.get("path"), str) or not _is_array(item.get("value")):
                raise DamagedError(f"variables.{group}.{number} is no variable")
    for where, states in (("random", tree["random"]), ("fit.random", tree["fit"]["random"])):
        try:
            randomness.try_out(states)
        except Exception as error:  # of Python's and NumPy's generators, each of another kind
            raise DamagedError(f"{where} holds no states of random generators ({error})") from error


def _check(value: Any, kinds: dict[str, Any], where: str) -> None:
    for name, kind in kinds.items():
        if not isinstance(value, dict) or name not in value:
            raise DamagedError(f"{where}{name} is missing")
        if isinstance(kind, dict):
            _check(value[name], kind, f"{where}{name}.")
        elif not _fits(value[name], kind):
            found = value[name] if isinstance(value[name], int) else f"a {type(value[name]).__name__}"
            raise DamagedError(f"{where}{name} is {found}")


def _fits(value: Any, kind: Any) -> bool:
    """kind: a class, a range of integers, None, or several of them."""
    if isinstance(kind, tuple):
        return any(_fits(value, one) for one in kind)
    if isinstance(kind, range):
        return type(value) is int and value in kind
    return value is None if kind is None else type(value) is kind


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic, StoredArray))
