"""Inputs for fuzzing with hypothesis: those of tests/fuzz/corpus.json, changed in a few places, and anything else."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

CORPUS = Path(__file__).resolve().parents[2] / "fuzz/corpus.json"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
"""For each test; tools/fuzz asks for more."""

fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def corpus(name: str) -> list[bytes]:
    """The inputs of a target."""
    return [text.encode("latin-1") for text in json.loads(CORPUS.read_text())[name].values()]


def changed(originals: list[bytes], words: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of these texts with up to four edits, each of which replaces a few bytes by a word or by any bytes."""
    inserted = st.one_of(st.sampled_from(words), st.binary(max_size=8))
    edit = st.tuples(st.floats(0, 1), st.integers(0, 12), inserted)

    def apply(original: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
        text = original
        for place, removed, new in edits:
            at = int(place * len(text))
            text = text[:at] + new + text[at + removed :]
        return text

    return st.builds(apply, st.sampled_from(originals), st.lists(edit, max_size=4))


def json_values() -> st.SearchStrategy[object]:
    """Anything that JSON can hold, also what only Python's reader takes."""
    numbers = st.one_of(st.integers(), st.integers(-(10**400), 10**400), st.floats())
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=6)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
        max_leaves=8,
    )
