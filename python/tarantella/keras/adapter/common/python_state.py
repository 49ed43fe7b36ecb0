"""What models, layers, losses and metrics of a user's own classes keep in Python, such as counts, flags and lists.

A step that runs eagerly may count its calls in an attribute, or do something in its first call alone.
"""

import dis
import functools
import inspect
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras.adapter.front_end import keras

_VALUES = (bool, int, float, complex, str, np.generic, tf.Tensor, type(None))
_STEPS = ("call", "train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
_CONTAINERS = (list, dict, set, deque, np.ndarray)


class Attributes:
    """Attributes, with their values from before. Those that Keras sets are left out.

    Args:
        owners: of the attributes.
    """

    def __init__(self, owners: Iterable[Any]) -> None:
        own = {id(owner): owner for owner in owners if not is_builtin(owner)}
        self._before = [
            (owner, number_of_weights(owner), _held_by(owner), {name: (value, _copy(value)) for name, value in _of(owner)})
            for owner in own.values()
        ]

    def restore(self) -> None:
        """Gives the attributes these values, and takes away those that were made since.

        Of an owner that has weights since, they may say that it has. So only those are restored that its call or its steps
        set, and of one that has made them itself only numbers among these.
        """
        for owner, weights, held, before in self._before:
            is_same = number_of_weights(owner) == weights
            names = {*before, *dict(_of(owner))} if is_same else set(_set_by_steps(type(owner).__mro__))
            if not is_same and _held_by(owner) != held:
                names = {name for name in names if type(before.get(name, (None,))[0]) in (int, float)}
            attributes = vars(owner)  # Keras would track what is assigned
            for name in [name for name, _ in _of(owner) if name in names and name not in before]:
                del attributes[name]
            for name, (value, contents) in before.items():
                if name in names:
                    _fill(value, contents)
                    attributes[name] = value


class RandomNumbers:
    """The states of Python's and NumPy's common generators."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state()

    def restore(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)


def number_of_weights(owner: Any) -> int:
    """How many weights a layer or a model has; 0 for anything else, and before they are made."""
    try:
        return len(getattr(owner, "weights", ()))
    except ValueError:  # of legacy Keras, for a Sequential model that is not built
        return 0


def _held_by(owner: Any) -> set[int]:
    """The layers and variables that it holds itself."""
    return {id(one) for one in attributes_of([owner]) if isinstance(one, keras.layers.Layer) or hasattr(one, "assign")}


@functools.cache
def _set_by_steps(classes: tuple[type, ...]) -> frozenset[str]:
    """The names of attributes that the user's own `call` and steps set."""
    steps = [vars(base).get(name) for base in classes for name in _STEPS]
    return frozenset[str]().union(*map(_stored_in, steps)) - _set_by_keras(classes)


def _of(owner: Any) -> Iterator[tuple[str, Any]]:
    of_keras = _set_by_keras(type(owner).__mro__)
    for name, value in getattr(owner, "__dict__", {}).items():
        if name not in of_keras and isinstance(value, (*_VALUES, *_CONTAINERS)):
            yield name, value


@functools.cache
def _set_by_keras(classes: tuple[type, ...]) -> frozenset[str]:
    """The names of attributes that the methods of those classes set that are Keras'."""
    own = [base for base in classes if base.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow")]
    members = [getattr(member, "fset", member) for base in own for member in vars(base).values()]
    return frozenset[str]().union(*map(_stored_in, members))


def _stored_in(member: Any) -> frozenset[str]:
    """The names of attributes that a function sets; none of anything else."""
    if not inspect.isfunction(member):
        return frozenset()
    instructions = dis.get_instructions(inspect.unwrap(member).__code__)
    return frozenset(str(one.argval) for one in instructions if one.opname == "STORE_ATTR")


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


def attributes_of(objects: Sequence[Any]) -> Iterator[Any]:
    """The values of the objects' own attributes, one by one also where they are in lists and dicts."""
    for owner in objects:
        for value in list(getattr(owner, "__dict__", {}).values()):
            yield from _members(value)


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list, tuple)):
        for member in list(value.values() if isinstance(value, dict) else value):
            yield from _members(member)
    else:
        yield value


def is_builtin(value: Any) -> bool:
    """Whether the class of a metric, layer or loss comes with Keras."""
    return type(value).__module__.partition(".")[0] in ("keras", "tf_keras")
