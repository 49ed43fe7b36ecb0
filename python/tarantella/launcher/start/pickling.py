"""Pickling for `tnt.launch`, to its ranks and back: cloudpickle's, but functions keep the names of their files.

Since 3.1.3 cloudpickle calls the file of every function that it sends "<dynamic-code>": the traceback of an error would show no
line of the user's.
"""

import io
import types
from collections import ChainMap
from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle


def dumps(value: Any) -> bytes:
    """Raises what cloudpickle raises."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    make, arguments, *_ = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return _code, (make, arguments, code.co_filename)


def _code(make: Callable[..., types.CodeType], arguments: tuple[Any, ...], filename: str) -> types.CodeType:
    return make(*arguments).replace(co_filename=filename)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[Any] = ChainMap({types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)
