"""Fuzzing of settings as Python reads them: a value, or one InvalidArgumentError that names the variable."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given

from support.mutations import changed, corpus, fuzzed
from tarantella import settings
from tarantella.errors import InvalidArgumentError

WORDS = [b"=", b",", b"-", b"1e999", b"nan", b"inf", b"autotune", b"4M", b"9" * 20, b"\n", b"\xff", b"TNT_", b"_ON_ALL"]
READERS: tuple[Callable[[], object], ...] = (
    settings.fusion_threshold,
    settings.autotune,
    settings.gradient_dtype,
    settings.gpus_per_node,
    settings.reproducible,
    settings.log_level,
    lambda: settings.on_all_ranks("log"),
)


def refused(error: InvalidArgumentError) -> None:
    assert "TNT_" in str(error) and len(str(error)) < 2000


@fuzzed
@given(text=changed(corpus("fuzz_settings"), WORDS))
def test_environments(text: bytes) -> None:
    environment = {}
    for line in text.replace(b"\x00", b"").split(b"\n"):
        name, equals, value = line.partition(b"=")
        if name and equals:
            environment[os.fsdecode(name)] = os.fsdecode(value)
    try:
        settings.check(environment)
    except InvalidArgumentError as error:
        refused(error)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            if name.startswith("TNT_"):
                patch.setenv(name, value)
        for read in READERS:
            try:
                read()
            except InvalidArgumentError as error:
                refused(error)
