"""Fuzzing of the file of fusion thresholds: a threshold or none, a warning for what is no cache, and never an error."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.mutations import changed, corpus, fuzzed, json_values
from tarantella.keras.reduction import autotune_cache

KEY = {"model": "m", "ranks": 2, "ranks_per_node": 2, "transport": "shm"}
WORDS = [b"[", b"]", b"{", b"}", b'"', b",", b":", b"-", b"1e999", b"NaN", b"Infinity", b"true", b"null", b"9" * 40, b"\xff"]
ENTRY = st.fixed_dictionaries(
    {name: st.one_of(st.just(value), json_values()) for name, value in KEY.items()}
    | {"fusion_threshold": st.one_of(st.just("inf"), st.integers(), json_values())}
    | {"step_ms": st.one_of(st.just({}), json_values())}
)


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # takes most of the time, and nothing crashes here
    path = autotune_cache.path()
    assert path is not None
    path.parent.mkdir(parents=True)
    return path


def check(file: Any) -> None:
    found = autotune_cache.find(KEY)
    assert found is None or found >= 0
    assert autotune_cache.store(KEY, 4096.0, {"4 KiB": 1.5}) == file
    assert autotune_cache.find(KEY) == 4096
    assert autotune_cache.store(KEY, math.inf, {}) == file
    assert autotune_cache.find(KEY) == math.inf


@fuzzed
@given(text=changed(corpus("fuzz_autotune_cache"), WORDS))
def test_texts(file, text: bytes) -> None:
    file.write_bytes(text)
    check(file)


@fuzzed
@given(content=st.one_of(json_values(), st.lists(ENTRY, max_size=3).map(lambda entries: {"schema": 1, "entries": entries})))
def test_values(file, content: object) -> None:
    file.write_text(json.dumps(content))
    check(file)
