"""Slots: variables of an optimizer's state that one rank holds and the others know by name, shape and type."""

from __future__ import annotations

from typing import Any

from tarantella.keras.adapter.front_end import LEGACY

CAN_SHARD_OPTIMIZERS = not LEGACY
"""Whether optimizers of this front end can be built with a part of their state."""


def is_slot(variable: Any) -> bool:
    """Whether one rank alone holds the variable's value."""
    return getattr(variable, "_tnt_owner", None) is not None
