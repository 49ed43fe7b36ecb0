"""The file of fusion thresholds: what cannot be understood is named, ignored and written anew, whatever it is."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from tarantella import runtime
from tarantella.keras.reduction import autotune_cache

KEY = {"model": "m", "ranks": 2, "ranks_per_node": 2, "transport": "shm"}
ENTRY = {**KEY, "fusion_threshold": 4096, "step_ms": {"4 KiB": 1.5}}
DEEP = 100_000


def file_with(*entries: dict[str, Any]) -> str:
    return json.dumps({"schema": 1, "entries": entries})


NONSENSE = {
    "nested": ("[" * DEEP + "]" * DEEP, "maximum recursion depth"),
    "beyond floats": (file_with({**ENTRY, "fusion_threshold": 10**400}), r"entries\[0\]\.fusion_threshold is 10{39}: expected"),
    "beyond integers": (file_with(ENTRY).replace("4096", "1" * 5000), "integer string conversion"),
    "no time": (file_with({**ENTRY, "step_ms": {"4 KiB": [[1]]}}), r"entries\[0\]\.step_ms is missing or no step_ms"),
}


@pytest.fixture
def warnings(tmp_path, monkeypatch) -> list[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found: list[str] = []
    monkeypatch.setattr(runtime.logger, "log", lambda level, text, *values: found.append(text % values))
    file = autotune_cache.path()
    assert file is not None
    file.parent.mkdir(parents=True)
    return found


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_named_and_written_anew(warnings, name):
    text, why = NONSENSE[name]
    file = autotune_cache.path()
    file.write_text(text)
    assert autotune_cache.find(KEY) is None
    (warning,) = warnings
    assert warning.startswith(f"{file} cannot be understood and will be written anew: ")
    assert re.search(why, warning), warning
    assert autotune_cache.store(KEY, math.inf, {"inf": 1.0}) == file
    assert autotune_cache.find(KEY) == math.inf


def test_other_entries_stay(warnings):
    autotune_cache.path().write_text(file_with(ENTRY, {**ENTRY, "ranks": 4}))
    assert autotune_cache.find(KEY) == 4096.0
    autotune_cache.store(KEY, 8192.0, {})
    assert [autotune_cache.find({**KEY, "ranks": ranks}) for ranks in (2, 4, 8)] == [8192.0, 4096.0, None]
    assert not warnings
