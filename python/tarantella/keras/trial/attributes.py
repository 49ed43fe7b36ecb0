"""What models, layers, losses and metrics of a user's own classes keep in Python, such as counts, flags and lists.

A step that runs eagerly may count its calls in an attribute, or do something in its first call alone.
"""

import dis
import functools
import inspect
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras import adapter

_VALUES = (bool, int, float, complex, str, np.generic, tf.Tensor, type(None))
_CONTAINERS = (list, dict, set, deque, np.ndarray)


class Attributes:
    """Attributes, with their values from before. Those that Keras sets are left out.

    Args:
        owners: of the attributes.
    """

    def __init__(self, owners: Iterable[Any]) -> None:
        own = {id(owner): owner for owner in owners if not adapter.is_builtin(owner)}
        self._before = [
            (owner, _weights_of(owner), {name: (value, _copy(value)) for name, value in _of(owner)}) for owner in own.values()
        ]

    def restore(self) -> None:
        """Gives the attributes these values, and takes away those that were made since.

        Not those of an owner that has made weights meanwhile: they may say that it has.
        """
        for owner, weights, before in self._before:
            if _weights_of(owner) != weights:
                continue
            attributes = vars(owner)  # Keras would track what is assigned
            for name in [name for name, _ in _of(owner) if name not in before]:
                del attributes[name]
            for name, (value, contents) in before.items():
                _fill(value, contents)
                attributes[name] = value


def _weights_of(owner: Any) -> int:
    return len(getattr(owner, "weights", ()))


def _of(owner: Any) -> Iterator[tuple[str, Any]]:
    of_keras = frozenset[str]().union(*map(_set_by, type(owner).__mro__))
    for name, value in getattr(owner, "__dict__", {}).items():
        if name not in of_keras and isinstance(value, (*_VALUES, *_CONTAINERS)):
            yield name, value


@functools.cache
def _set_by(owner: type) -> frozenset[str]:
    """The names of attributes that the methods of a class of Keras set; none for other classes."""
    if owner.__module__.partition(".")[0] not in ("keras", "tf_keras", "tensorflow"):
        return frozenset()
    members = [getattr(member, "fset", member) for member in vars(owner).values()]
    codes = [inspect.unwrap(member).__code__ for member in members if inspect.isfunction(member)]
    return frozenset(str(one.argval) for code in codes for one in dis.get_instructions(code) if one.opname == "STORE_ATTR")


def _copy(value: Any) -> Any:
    """What a container has now; None for other values."""
    return value.copy() if isinstance(value, _CONTAINERS) else None


def _fill(value: Any, contents: Any) -> None:
    """Gives a container these contents, if it has others."""
    if isinstance(value, np.ndarray):
        value[...] = contents
    elif contents is not None and not _has(value, contents):
        value.clear()
        (value.update if isinstance(value, (dict, set)) else value.extend)(contents)


def _has(value: Any, contents: Any) -> bool:
    """Whether a container has the same objects as a copy of it."""
    now, before = ([*one, *one.values()] if isinstance(one, dict) else list(one) for one in (value, contents))
    return len(now) == len(before) and all(one is other for one, other in zip(now, before, strict=True))
