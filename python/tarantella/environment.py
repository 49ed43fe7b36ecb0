"""What this process can tell of the job from its environment alone, without joining it."""

from __future__ import annotations

import hashlib
import os

from tarantella.errors import InvalidArgumentError


def in_job() -> bool:
    """Whether this process was started as one of several ranks."""
    return os.environ.get("TNT_SIZE", "1") != "1"


def flag(name: str) -> bool:
    """Whether the variable is set to what means yes.

    Raises:
        InvalidArgumentError: it means neither yes nor no.
    """
    value = os.environ.get(name, "")
    if value.lower() in {"1", "true", "on", "yes"}:
        return True
    if value.lower() in {"0", "false", "off", "no", ""}:
        return False
    raise InvalidArgumentError(f"{name}={value}: expected true or false")


def output_on_all_devices() -> bool:
    """Whether ranks other than the master show progress and summaries too."""
    return flag("TNT_OUTPUT_ON_ALL_DEVICES")


def agreed_seed() -> int:
    """A random number that is the same on all ranks of the job and another one in the next job."""
    token = os.environ.get("TNT_TOKEN", str(os.getpid()))
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "little") & 0x7FFFFFFF
