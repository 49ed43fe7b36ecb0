"""The environment variables of Horovod: those that have a counterpart set it, before the job is joined; others are named."""

from __future__ import annotations

import os
from collections.abc import Callable

_LEVELS = {"trace": "DEBUG", "debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "fatal": "ERROR"}


def _kilobytes(text: str) -> str:
    """As TNT_FUSION_THRESHOLD has it: a tensor in each bucket for 0."""
    return str(-(-int(text) // 1024)) if text.isdigit() else text


_COUNTERPARTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "HOROVOD_FUSION_THRESHOLD": ("TNT_FUSION_THRESHOLD", _kilobytes),
    "HOROVOD_TIMELINE": ("TNT_TIMELINE", str),
    "HOROVOD_LOG_LEVEL": ("TNT_LOG_LEVEL", lambda text: _LEVELS.get(text.lower(), text)),
    "HOROVOD_GLOO_TIMEOUT_SECONDS": ("TNT_TIMEOUT", str),
}
# written by Horovod's launcher, or true of Tarantella as it is
_HARMLESS = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_DYNAMIC_PROCESS_SETS")


def honour() -> list[str]:
    """Sets the counterparts that the environment does not have. Returns the names of the variables that mean nothing here."""
    ignored = []
    for name, value in sorted(os.environ.items()):
        if name in _COUNTERPARTS:
            counterpart, convert = _COUNTERPARTS[name]
            os.environ.setdefault(counterpart, convert(value))
        elif name.startswith("HOROVOD_") and name not in _HARMLESS:
            ignored.append(name)
    return ignored
