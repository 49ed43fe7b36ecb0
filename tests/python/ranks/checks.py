"""Many checks in one launch: a script decorates functions with `check` and ends with `run(folder)`.

Each rank runs all of them in order, or those that are named, and writes what they returned, or raised, to `RANK.json` in the
folder.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tarantella as tnt

_checks: list[Callable[[], Any]] = []


def check(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function is one of the checks; what it returns must be what JSON can hold."""
    _checks.append(function)
    return function


def raised(action: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """The class and text of the exception that the action ends with; empty if there is none."""
    try:
        action(*args, **kwargs)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def log_messages() -> list[str]:
    """What the library logs from now on; grows as it does."""
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logging.getLogger("TNT_LIB").addHandler(Keep())
    return messages


def run(folder: str, *names: str) -> None:
    found: dict[str, Any] = {}
    for function in [f for f in _checks if not names or f.__name__ in names]:
        try:
            found[function.__name__] = {"value": function()}
        except Exception:
            found[function.__name__] = {"error": traceback.format_exc()}
        Path(folder, f"{tnt.get_rank()}.json").write_text(json.dumps(found))
