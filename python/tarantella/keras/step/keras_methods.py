"""Keras' own `fit`, `evaluate`, `predict` and the like, where a class with a version of its own reaches them by `super()`.

Many models have such versions: they prepare their data and call that of `keras.Model`. The user's arguments go to the class's
version, as in plain Keras, and Tarantella steps in where Keras' method is reached.
"""

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tarantella.keras.adapter import keras

METHODS = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch")

_routes: weakref.WeakKeyDictionary[Any, Mapping[str, Callable[..., Any]]] = weakref.WeakKeyDictionary()


@functools.cache
def install() -> None:
    """Makes the methods of `keras.Model` look for a route. Once in a process."""
    for name in METHODS:
        setattr(keras.Model, name, _routing(name, getattr(keras.Model, name)))


def _routing(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        route = _routes.get(self, {}).get(name)
        return original(self, *args, **kwargs) if route is None else route(*args, **kwargs)

    return method


@contextmanager
def routed(model: Any, routes: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """In this context these functions, by the methods' names, run in the place of Keras' methods of the model."""
    before = _routes.get(model, {})
    _routes[model] = routes
    try:
        yield
    finally:
        _routes[model] = before


def has_route(model: Any, name: str) -> bool:
    """Whether another function runs in the place of this method of Keras."""
    return name in _routes.get(model, {})


def keras_method(model: Any, name: str) -> Callable[..., Any]:
    """Keras' method of the model, past the version that its class may have. No other method has a route while it runs."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with routed(model, {}):
            return getattr(keras.Model, name)(model, *args, **kwargs)

    return call
