"""The functions that Keras makes of a model's steps, and traces: which are in place, and for which new ones were asked."""

import functools
import weakref
from typing import Any

from tarantella.keras.adapter.direct_calls import called_directly
from tarantella.keras.adapter.front_end import keras

_NAMES = ("train_function", "test_function", "predict_function")

_renewed_names: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()  # for each model that is watched


@functools.cache
def _install() -> None:
    """Makes models note where such an attribute is taken away or replaced. Once in a process.

    Keras and its clients ask for a new function by setting None, after `quantize` for example. No event tells of it, and a
    property would not either: TensorFlow does not set an attribute that has the value already.
    """
    original = keras.Model.__setattr__

    @functools.wraps(original)
    def set_attribute(self: Any, name: str, value: Any) -> None:
        if name in _NAMES and self in _renewed_names:
            before = self.__dict__.get(name)
            # None counts even if there was none: another one may be kept for later
            if value is None or (before is not None and before is not value):
                _renewed_names[self].add(name)
        original(self, name, value)

    keras.Model.__setattr__ = set_attribute
    for name in _NAMES:
        _watch_making(name)


def _watch_making(name: str) -> None:
    original = getattr(keras.Model, f"make_{name}")
    takes_iterator = name != "predict_function"

    @functools.wraps(original)
    def make_function(self: Any, force: bool = False) -> Any:
        if self not in _renewed_names:
            return original(self, force)
        if force:
            _renewed_names[self].add(name)
        before = self.__dict__.get(name)
        made = original(self, force)
        function = self.__dict__.get(name)
        if function is before or not takes_iterator:
            return made
        self.__dict__[name] = called_directly(function)
        return self.__dict__[name]

    setattr(keras.Model, f"make_{name}", make_function)


def watch_functions(model: Any) -> None:
    """From now on `renewed_functions` knows the functions of this model that were taken away."""
    _install()
    _renewed_names[model] = set()


def renewed_functions(model: Any) -> set[int]:
    """The positions of the functions, as `swap_functions` has them, that Keras was asked to make anew since the last call."""
    names = _renewed_names.get(model, set())
    found = {_NAMES.index(name) for name in names}
    names.clear()
    return found


def swap_functions(model: Any, functions: tuple[Any, ...]) -> tuple[Any, ...]:
    """Gives the model other traced functions for training, test and prediction, and returns the ones it had.

    None stands for a function that Keras shall trace when it is needed.
    """
    before = tuple(model.__dict__.get(name) for name in _NAMES)
    model.__dict__.update(zip(_NAMES, functions, strict=True))  # past what notes it
    return before
