"""Attributes of objects that are replaced for a while."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Attribute = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and the value that the attribute is to have."""


class Patch:
    """Values for attributes of objects."""

    def __init__(self, attributes: Sequence[Attribute]) -> None:
        self._attributes = list(attributes)
        self._before: list[Attribute] = []

    def apply(self) -> None:
        """Gives the objects these attributes, past any `__setattr__` of theirs."""
        self._before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in self._attributes]
        for owner, name, value in self._attributes:
            object.__setattr__(owner, name, value)

    def revert(self) -> None:
        """Gives them the attributes they had. One that an object took from its class is deleted from the object."""
        for owner, name, value in self._before:
            if value is None:
                object.__delattr__(owner, name)
            else:
                object.__setattr__(owner, name, value)


@contextmanager
def patched(attributes: Callable[[], Iterable[Attribute]]) -> Iterator[None]:
    """Context in which objects have these attributes, which are asked for when it is entered."""
    patch = Patch([*attributes()])
    patch.apply()
    try:
        yield
    finally:
        patch.revert()
