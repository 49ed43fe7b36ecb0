"""What the launcher needs of the library, in place of the package's extension: it asks the installation's own."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

from tarantella import _place
from tarantella.errors import InvalidArgumentError


@cache
def _library() -> ctypes.CDLL:
    archive = Path(__file__).parents[1].resolve()
    path = archive.parent / _place.LIBRARY
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        print(f"tarantella: {archive} belongs to an installation, and its library cannot be loaded: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    library.tnt_version.restype = ctypes.c_char_p
    library.tnt_last_error.restype = ctypes.c_char_p
    return library


def version() -> str:
    return str(_library().tnt_version().decode())


def setting(name: str, value: str | None) -> str:
    """The value as the library reads it; its default for None. Raises InvalidArgumentError if it makes no sense."""
    canonical = ctypes.c_char_p()
    given = None if value is None else os.fsencode(value)
    if _library().tnt_setting(os.fsencode(name), given, ctypes.byref(canonical)) != 0:
        raise InvalidArgumentError(_library().tnt_last_error().decode(errors="replace"))
    return os.fsdecode(canonical.value or b"")
