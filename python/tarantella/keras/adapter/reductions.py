"""The operations that add up or average the elements of a tensor, and how a replacement gets in front of them.

`tf.reduce_sum`, `keras.ops.mean` and their like end at functions that TensorFlow generates for its operations, in a module that
is private. `tf.raw_ops` has the same functions under public names, and tells the module.
"""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

OPERATIONS = ("Sum", "Mean")


@contextmanager
def reductions_replaced(replace: Callable[[str, tf.Tensor, tf.Tensor], tf.Tensor]) -> Iterator[None]:
    """In this context sums and means along the first axis, by this thread, give what `replace` makes of them.

    replace: is given the operation's name, its input and its output.
    """
    places = [_place(operation) for operation in OPERATIONS]
    originals = [getattr(*place) for place in places]
    for operation, place, original in zip(OPERATIONS, places, originals, strict=True):
        setattr(*place, _replacement(operation, original, replace))
    try:
        yield
    finally:
        for place, original in zip(places, originals, strict=True):
            setattr(*place, original)


def _place(operation: str) -> tuple[Any, str]:
    """The module in which others look the function up, and its name there."""
    generated = inspect.unwrap(getattr(tf.raw_ops, operation))
    module, name = sys.modules[generated.__module__], generated.__name__
    return module, name if hasattr(module, name) else f"_{name}"


def _replacement(operation: str, original: Callable[..., Any], replace: Callable[..., Any]) -> Callable[..., Any]:
    signature, thread = inspect.signature(original), threading.get_ident()

    def reduced(*args: Any, **kwargs: Any) -> Any:
        output = original(*args, **kwargs)
        if threading.get_ident() != thread:
            return output
        given = signature.bind(*args, **kwargs).arguments
        x = tf.convert_to_tensor(given["input"])
        return replace(operation, x, output) if _is_along_first(x, given["axis"]) else output

    return tf.autograph.experimental.do_not_convert(reduced)  # type: ignore[no-any-return]


def _is_along_first(x: tf.Tensor, axes: Any) -> bool:
    static = tf.get_static_value(axes) if tf.is_tensor(axes) else axes
    if not x.shape.rank or static is None:
        return False
    return any(int(axis) % x.shape.rank == 0 for axis in np.ravel(static))
