"""Attributes that the predecessor's models have beside those of Keras. One of the user's own, of the same name, goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tarantella import runtime
from tarantella.collectives.group import Group
from tarantella.compat.operations import Barrier
from tarantella.keras import adapter

if TYPE_CHECKING:
    from collections.abc import Callable

ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "barrier": lambda model: Barrier(),
    "compiled": adapter.is_compiled,  # Keras 3 has it, legacy Keras has not
    "group": lambda model: Group(),
    "rank": lambda model: runtime.get_rank(),
}
"""How each is computed, from the Keras model inside."""
