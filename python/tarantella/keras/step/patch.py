"""Attributes of objects that are replaced for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class Patch:
    """Values for attributes of objects: an owner, a name and a value each."""

    def __init__(self, attributes: Sequence[tuple[Any, str, Any]]) -> None:
        self._attributes = list(attributes)
        self._before: list[tuple[Any, str, Any]] = []

    def put_on(self) -> None:
        """Gives the objects these attributes, past what they do when one is set."""
        self._before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in self._attributes]
        for owner, name, value in self._attributes:
            object.__setattr__(owner, name, value)

    def take_off(self) -> None:
        """Gives them those they had; where they had none of their own, their class' are seen again."""
        for owner, name, value in self._before:
            if value is None:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, value)
