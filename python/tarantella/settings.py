"""The settings of the user's: TNT_ variables of the environment (docs/settings.md), as the native module reads them.

Every function raises InvalidArgumentError if the variable's value makes no sense.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from tarantella import _native
from tarantella.errors import InvalidArgumentError


def check(variables: Mapping[str, str]) -> None:
    """Raises InvalidArgumentError if a TNT_ variable among these is no setting, or if its value makes no sense."""
    for name, value in variables.items():
        if name.startswith("TNT_"):
            _native.setting(name, value)


def is_set(name: str) -> bool:
    """Whether the environment has a value for this variable, whatever it is."""
    return bool(os.environ.get(name))


def timeout(variables: Mapping[str, str] = os.environ) -> float:
    """Seconds that a wait for another rank may take."""
    return float(_get("TNT_TIMEOUT", variables))


def reproducible(variables: Mapping[str, str] = os.environ) -> int | None:
    """The number of shards of a global batch: every number of ranks gives the same bits.

    Args:
        variables: where to look, if not in this process' own environment.

    Returns:
        A power of two; None where the environment does not ask for it.
    """
    value = _get("TNT_REPRODUCIBLE", variables)
    return int(value) if value else None


def fusion_threshold() -> float | None:
    """The bytes at which a bucket of gradients is closed, infinite for one bucket; None if the library chooses."""
    value = _get("TNT_FUSION_THRESHOLD")
    return None if value in ("", "autotune") else float(value)


def autotune() -> bool:
    """Whether the fusion threshold is to be chosen by trying some."""
    return _get("TNT_FUSION_THRESHOLD") == "autotune"


def gradient_dtype() -> str:
    """The dtype in which gradients travel unless the model names one; ``"none"`` for their own."""
    return _get("TNT_GRADIENT_DTYPE")


def gpus_per_node() -> int | None:
    """How many GPUs of a node are to be used, none if 0 or less; None if all of them."""
    value = _get("TNT_GPUS_PER_NODE")
    return int(value) if value else None


def fingerprint() -> Path | None:
    """The file that gets hashes of gradients and weights in each step, if one is wanted."""
    value = _get("TNT_FINGERPRINT")
    return Path(value) if value else None


def log_level() -> str:
    """The lowest level that is logged, as Python's logging names it."""
    return _get("TNT_LOG_LEVEL")


def on_all_ranks(what: str) -> bool:
    """Whether ranks other than the master do it too: ``"log"``, ``"output"`` (progress, summaries), ``"tensorboard"``
    or ``"mlflow"``."""
    return what in _get("TNT_ON_ALL_RANKS").split(",")


def shard_optimizer() -> bool:
    """Whether models that do not say spread their optimizer's state over ranks."""
    return _flag("TNT_SHARD_OPTIMIZER")


def trials() -> str:
    """When a model is tried on a batch and its parts: ``"epochs"`` (and before the first step), ``"first"`` or ``"off"``."""
    value = os.environ.get("TNT_TRIALS", "") or "epochs"
    if value not in ("epochs", "first", "off"):
        raise InvalidArgumentError(f"TNT_TRIALS={value}: expected epochs, first or off")
    return value


def horovod() -> bool:
    """Whether scripts find our functions under the name of Horovod."""
    return _flag("TNT_HOROVOD")


def horovod_pickle() -> bool:
    """Whether a script for Horovod may send objects as pickles, which can run code."""
    return _flag("TNT_HOROVOD_PICKLE")


def _flag(name: str) -> bool:
    value = os.environ.get(name, "")
    if value not in ("", "0", "1"):
        raise InvalidArgumentError(f"{name}={value}: expected 0 or 1")
    return value == "1"


def _get(name: str, variables: Mapping[str, str] = os.environ) -> str:
    return _native.setting(name, variables.get(name))
