"""The operation that made a dataset, with its arguments: TensorFlow keeps them, but tells nobody.

They are noted on the tensor that stands for the dataset, so that it can be made again with some of them changed. The functions
that TensorFlow generates for its operations are in private modules; `tf.raw_ops` tells them.
"""

import functools
import inspect
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

_DATASET = re.compile(r"\w+Dataset(V\d+)?")


class Made(NamedTuple):
    """One call of an operation that made a dataset."""

    operation: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """By their names."""
        return inspect.signature(self.function).bind(*self.args, **self.kwargs).arguments


def note(tf: ModuleType) -> None:
    """From now on it is noted how datasets are made, but for those in the functions of others."""
    for operation in filter(_DATASET.fullmatch, dir(tf.raw_ops)):
        generated = inspect.unwrap(getattr(tf.raw_ops, operation))
        module = sys.modules[generated.__module__]
        current = getattr(module, generated.__name__)
        if not hasattr(current, "_tnt_noted"):
            setattr(module, generated.__name__, _noted(operation, current))


def _noted(operation: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if hasattr(result, "numpy"):  # a tensor, but none of a graph
            result._tnt_made = Made(operation, function, args, kwargs)
        return result

    noted._tnt_noted = True  # type: ignore[attr-defined]
    return noted


def how(tensor: Any) -> Made | None:
    """How the dataset was made; None if this is another tensor, or it was not noted."""
    return getattr(tensor, "_tnt_made", None)
