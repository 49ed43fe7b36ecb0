"""The settings of the user's: TNT_ variables of the environment (docs/settings.md), checked when they are asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tarantella.errors import InvalidArgumentError


def flag(name: str) -> bool:
    """Whether the variable is set to what means yes.

    Raises:
        InvalidArgumentError: it means neither yes nor no.
    """
    value = os.environ.get(name, "")
    if value.lower() in {"1", "true", "on", "yes"}:
        return True
    if value.lower() in {"0", "false", "off", "no", ""}:
        return False
    raise InvalidArgumentError(f"{name}={value}: expected true or false")


def output_on_all_devices() -> bool:
    """Whether ranks other than the master show progress and summaries too."""
    return flag("TNT_OUTPUT_ON_ALL_DEVICES")


def tensorboard_on_all_devices() -> bool:
    """Whether ranks other than the master write files for TensorBoard too, each into folders of its own."""
    return flag("TNT_TENSORBOARD_ON_ALL_DEVICES")


def log_on_all_devices() -> bool:
    """Whether ranks other than the master log too."""
    return flag("TNT_LOG_ON_ALL_DEVICES")


def log_level() -> str:
    """The least level that is logged, in words of Python's logging."""
    level = os.environ.get("TNT_LOG_LEVEL", "WARNING").upper()
    return {"WARN": "WARNING"}.get(level, level)


def gpus_per_node() -> int | None:
    """How many GPUs of a node are to be used, none if 0 or less; None if all of them.

    Raises:
        InvalidArgumentError: it is no whole number.
    """
    value = os.environ.get("TNT_GPUS_PER_NODE", "")
    try:
        return int(value) if value else None
    except ValueError:
        raise InvalidArgumentError(f"TNT_GPUS_PER_NODE={value}: expected a whole number") from None


def reproducible(variables: Mapping[str, str] = os.environ) -> int | None:
    """Into how many shards a global batch is cut, whatever the number of ranks, so that they all give the same bits.

    Args:
        variables: where to look, if not in this process' own environment.

    Returns:
        A power of two; None where the environment does not ask for it.

    Raises:
        InvalidArgumentError: it is no power of two.
    """
    value = variables.get("TNT_REPRODUCIBLE", "")
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and int(value).bit_count() == 1):
        raise InvalidArgumentError(f"TNT_REPRODUCIBLE={value}: expected a power of two, such as 8")
    return int(value)


def has_reproducible() -> bool:
    """Whether the environment says something of it, sense or not."""
    return bool(os.environ.get("TNT_REPRODUCIBLE"))


def fingerprint() -> Path | None:
    """The file that gets hashes of gradients and weights in each step, if one is wanted."""
    value = os.environ.get("TNT_FINGERPRINT", "")
    return Path(value) if value else None


def autotune() -> bool:
    """Whether the fusion threshold is to be chosen by trying some."""
    return flag("TNT_AUTOTUNE")


def has_fusion_threshold() -> bool:
    """Whether the environment says at how many bytes a bucket of gradients is closed."""
    return "TNT_FUSION_THRESHOLD" in os.environ


def fusion_threshold() -> float | None:
    """At how many bytes a bucket of gradients is closed, infinite for one bucket; None if the library chooses.

    Raises:
        InvalidArgumentError: it is no size.
    """
    value = os.environ.get("TNT_FUSION_THRESHOLD")
    try:
        return None if value is None else kilobytes(value)
    except ValueError as error:
        raise InvalidArgumentError(f"TNT_FUSION_THRESHOLD={value}: expected {error}") from None


def kilobytes(text: str) -> float:
    """A size in bytes, as `src/base/settings.cpp` reads it. Raises ValueError with what was expected."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kmg]?)|inf", text, re.IGNORECASE)
    if found is None:
        raise ValueError("kilobytes, a number with K, M or G, or inf")
    if found[1] is None:
        return float("inf")
    return float(found[1]) * 1024.0 ** " kmg".index(found[2].lower() or "k")


def gradient_dtype() -> str:
    """In which gradients of models that do not say are sent, ``"none"`` for as they are."""
    return os.environ.get("TNT_GRADIENT_DTYPE", "none").lower()
