"""A file on this host that keeps the best fusion threshold of each model for its next run."""

import hashlib
import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tarantella import runtime
from tarantella.environment import host_cache_file
from tarantella.keras import files
from tarantella.keras.reduction.reducer import Spec

SCHEMA = 1
_KINDS: dict[str, Any] = {"model": str, "ranks": int, "ranks_per_node": int, "transport": str, "fusion_threshold": (int, str)}
_ABOUT = "fusion thresholds that TNT_FUSION_THRESHOLD=autotune has found; delete the file, or an entry, to have it tried again"


def key_of(specs: Sequence[Spec], wire_dtype: str) -> dict[str, Any]:
    """The model, world and wire type that a threshold belongs to. Names of layers do not count: Keras numbers them."""
    text = "\n".join([wire_dtype, *(f"{spec.count} {spec.dtype}" for spec in specs)])
    world = runtime.world()
    return {
        "model": hashlib.sha256(text.encode()).hexdigest()[:16],
        "ranks": world.size,
        "ranks_per_node": world.local_size,
        "transport": world.transport,
    }


def path() -> Path | None:
    """The cache file; None if the environment names no home."""
    return host_cache_file("autotune")


def find(key: dict[str, Any]) -> float | None:
    """The threshold in bytes stored for the key, if any. An unreadable file is ignored, with a warning."""
    for entry in _entries():
        if all(entry[name] == value for name, value in key.items()):
            return math.inf if entry["fusion_threshold"] == "inf" else float(entry["fusion_threshold"])
    return None


def store(key: dict[str, Any], threshold: float, step_ms: dict[str, float]) -> Path | None:
    """Stores a threshold. Returns the file; None, with a warning, if it cannot be written."""
    file = path()
    if file is None:
        runtime.logger.warning("the fusion threshold cannot be stored for the next run: neither XDG_CACHE_HOME nor HOME is set")
        return None
    others = [entry for entry in _entries(logging.DEBUG) if any(entry[name] != value for name, value in key.items())]
    entry = {**key, "fusion_threshold": "inf" if math.isinf(threshold) else int(threshold), "step_ms": step_ms}
    text = json.dumps({"schema": SCHEMA, "about": _ABOUT, "entries": [*others, entry]}, indent=2) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        files.replace(file, lambda beside: _write(beside, text))
    except OSError as error:
        runtime.logger.warning("the fusion threshold cannot be stored for the next run: %s", error)
        return None
    return file


def _write(beside: str, text: str) -> None:
    with open(beside, "w", encoding="utf-8") as file:
        file.write(text)


def _entries(level: int = logging.WARNING) -> list[dict[str, Any]]:
    file = path()
    if file is None or not file.exists():
        return []
    try:
        return _checked(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:  # the last one: lists in lists in lists
        runtime.logger.log(level, "%s cannot be understood and will be written anew: %s", file, error)
        return []


def _checked(content: Any) -> list[dict[str, Any]]:
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"expected an object with schema {SCHEMA}")
    entries = content.get("entries")
    if not isinstance(entries, list):
        raise ValueError("entries is no list")
    for number, entry in enumerate(entries):
        for name, kind in _KINDS.items():
            if not isinstance(entry, dict) or not isinstance(entry.get(name), kind):
                raise ValueError(f"entries[{number}].{name} is missing or no {name}")
        threshold = entry["fusion_threshold"]
        if threshold != "inf" and (isinstance(threshold, (str, bool)) or not 0 <= threshold <= sys.maxsize):
            raise ValueError(f"entries[{number}].fusion_threshold is {threshold!r:.40}: expected bytes or 'inf'")
        step_ms = entry.get("step_ms")
        if not isinstance(step_ms, dict) or not all(isinstance(time, (int, float)) for time in step_ms.values()):
            raise ValueError(f"entries[{number}].step_ms is missing or no step_ms")
    return [{name: entry[name] for name in (*_KINDS, "step_ms")} for entry in entries]
