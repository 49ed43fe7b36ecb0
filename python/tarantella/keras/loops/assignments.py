"""Variables that a training loop changes by itself: ``v.assign_sub(rate * gradient)``, without an optimizer that would ask.

A tape of TensorFlow's tells which variables are trained. A change of one of them outside of an optimizer is such a step.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.adapter.tensorflow import variable_class

_in_optimizers = 0
_LIBRARIES = ("horovod", "keras", "tarantella", "tensorflow", "tf_keras")
_PASSED = ("keras.src.backend.", "tensorflow.python.autograph.", "tensorflow.python.util.")
"""Modules of these that stand between a script and the method that it calls: Keras' variables, converted functions."""


def install(trained: set[int], remember: Callable[[Sequence[Any]], None], check: Callable[[str, Any], None]) -> None:
    """Watches tapes and assignments from now on. Once in a process.

    Args:
        trained: the ids of variables of which a tape has computed gradients.
        remember: adds variables to them.
        check: is called before such a variable changes, with the name of the method.
    """
    taken, variables = tf.GradientTape.gradient, variable_class()

    @functools.wraps(taken)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        remember([source for source in tf.nest.flatten(sources) if isinstance(adapter.unwrap(source), variables)])
        return taken(self, target, sources, *args, **kwargs)

    tf.GradientTape.gradient = gradient
    for name in ("assign", "assign_add", "assign_sub"):
        setattr(variables, name, _asking(name, getattr(variables, name), trained, check))


def _asking(name: str, original: Any, trained: set[int], check: Callable[[str, Any], None]) -> Callable[..., Any]:
    @functools.wraps(original)
    def assign(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _in_optimizers == 0 and id(self) in trained and _is_called_by_a_script():
            check(name, self)
        return original(self, *args, **kwargs)

    return assign


def _is_called_by_a_script() -> bool:
    """Whether no method of Keras, TensorFlow or ours assigns: `set_weights`, the reading of a file, a broadcast."""
    modules = _callers(inspect.currentframe())
    outside = next((module for module in modules if module != __name__ and not module.startswith(_PASSED)), "")
    return outside.partition(".")[0] not in _LIBRARIES


def _callers(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back


@contextmanager
def inside_optimizer() -> Iterator[None]:
    """An optimizer, which has asked, changes variables in this context."""
    global _in_optimizers
    _in_optimizers += 1
    try:
        yield
    finally:
        _in_optimizers -= 1
