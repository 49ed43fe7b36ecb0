"""Plain Keras models in a distributed job: a copy of a `tnt.Model` must not train unsynchronised unnoticed.

A clone, or a model loaded from a file, is a plain Keras model, whose `fit` knows nothing of ranks. On more than one rank its
`fit` raises an error that says what to do. Other plain models may train, each rank its own, and the log says so once.
"""

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tarantella import runtime
from tarantella.errors import TarantellaError
from tarantella.keras import adapter
from tarantella.keras.adapter import keras

_wrapped: weakref.WeakSet[Any] = weakref.WeakSet()  # models inside a tnt.Model
_copied: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # and how each came to be
_allowed: weakref.WeakSet[Any] = weakref.WeakSet()  # plain models that the user asked for, or that were warned of
_internal_calls = 0  # open contexts of internal_call


def mark_wrapped(model: Any) -> None:
    """The model is inside a `tnt.Model` now: training it directly would not be synchronised."""
    _wrapped.add(model)
    _copied.pop(model, None)


def allow(model: Any) -> None:
    """The model may be trained as a plain one: the user wants each rank to train its own."""
    _allowed.add(model)
    _copied.pop(model, None)


@contextmanager
def internal_call() -> Iterator[None]:
    """Context in which Keras' methods run on behalf of a `tnt.Model`."""
    global _internal_calls
    _internal_calls += 1
    try:
        yield
    finally:
        _internal_calls -= 1


def is_internal_call() -> bool:
    """Whether a method of Keras runs on behalf of a `tnt.Model`."""
    return _internal_calls > 0


def wrapped() -> list[Any]:
    """The models inside of a `tnt.Model`."""
    return list(_wrapped)


def allowed() -> list[Any]:
    """The plain models that each rank trains on its own: the user asked for it, or was warned of it."""
    return list(_allowed)


def _check(model: Any, method: str) -> None:
    if _internal_calls or runtime.get_size() == 1 or model in _allowed:
        return
    wrap_it = "call it on tnt.Model(model), or ask for a model of its own on each rank with "
    wrap_it += "tnt.Model(model, parallel_strategy=tnt.ParallelStrategy.NONE)"
    if model in _wrapped:
        raise TarantellaError(
            f"{method} was called on the Keras model inside a tnt.Model: on {runtime.get_size()} ranks each would train "
            f"on its own. Call {method} on what tnt.Model(...) returned"
        )
    if model in _copied:
        raise TarantellaError(
            f"{method}: this model was {_copied[model]}; it is a plain Keras model, and on {runtime.get_size()} ranks each "
            f"would train on its own: {wrap_it}"
        )
    _allowed.add(model)
    runtime.logger.warning(
        "%s of the plain Keras model %r: each of the %d ranks trains its own copy, nothing is synchronised (%s)",
        method,
        model.name,
        runtime.get_size(),
        wrap_it,
    )


@functools.cache
def install_checks() -> None:
    """Makes plain models check before they train, and records copies of wrapped ones. Once in a process."""
    if runtime.get_size() == 1:
        return
    for method in ("fit", "train_on_batch"):
        _check_before(method)
    for module, name, how in adapter.copying_functions():
        _record_copies(module, name, how)


def _check_before(method: str) -> None:
    original = getattr(keras.Model, method)

    @functools.wraps(original)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self, method)
        return original(self, *args, **kwargs)

    setattr(keras.Model, method, checked)


def _record_copies(module: Any, name: str, how: str) -> None:
    original: Callable[..., Any] = getattr(module, name)

    @functools.wraps(original)
    def recording(*args: Any, **kwargs: Any) -> Any:
        model = original(*args, **kwargs)
        if isinstance(model, keras.Model) and (how != "cloned" or _is_distributed(args, kwargs)):
            _copied[model] = how
        return model

    setattr(module, name, recording)


def _is_distributed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the model that is cloned is a `tnt.Model` or the one inside."""
    source = args[0] if args else kwargs.get("model")
    return getattr(source, "model", source) in _wrapped
