"""Exception classes, how they come out of TensorFlow's messages, and the strategies."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import tarantella as tnt
from tarantella import _native, settings
from tarantella.errors import from_message, from_status, mark

CLASSES = {
    "TNT_INVALID_ARGUMENT": (tnt.InvalidArgumentError, ValueError),
    "TNT_MISMATCH": (tnt.MismatchError, RuntimeError),
    "TNT_TIMEOUT": (tnt.DeadlineError, TimeoutError),
    "TNT_PEER_LOST": (tnt.PeerLostError, ConnectionError),
    "TNT_ABORTED": (tnt.AbortedError, RuntimeError),
    "TNT_SYSTEM": (tnt.TarantellaError, RuntimeError),
    "TNT_UNSUPPORTED": (tnt.UnsupportedError, NotImplementedError),
}


@pytest.mark.parametrize("status", CLASSES)
def test_each_status_has_its_class(status):
    ours, builtin = CLASSES[status]
    error = from_status(status, "rank 1 is late")
    assert type(error) is ours
    assert isinstance(error, builtin)
    assert isinstance(error, tnt.TarantellaError)
    assert str(error) == "rank 1 is late"
    assert error.status == status


def test_the_librarys_statuses_have_one_class_each():
    assert set(CLASSES) == set(_native.Status.__members__) - {"TNT_SUCCESS"}


def test_the_librarys_types_are_numpys():
    names = [name for name in _native.Dtype.__members__ if name != "bfloat16"]
    assert [np.dtype(name).name for name in names] == names


def test_a_status_of_a_newer_library():
    assert type(from_status("TNT_SOMETHING_NEW", "text")) is tnt.TarantellaError


@pytest.mark.parametrize("sentence", ["rank 1 is late", "two\nlines", "with [brackets] in it", ""])
def test_an_error_is_found_in_tensorflows_message(sentence):
    message = f"Graph execution error:\n\nDetected at node x:\n{mark('TNT_TIMEOUT', sentence)}\n\t [[{{node x}}]] [Op:y]"
    error = from_message(message)
    assert type(error) is tnt.DeadlineError
    assert str(error) == sentence


def test_other_messages_are_not_ours():
    assert from_message("Graph execution error: OOM when allocating tensor") is None


def test_strategies():
    assert tnt.ParallelStrategy.ALL == tnt.ParallelStrategy.DATA | tnt.ParallelStrategy.PIPELINING
    assert tnt.ParallelStrategy.PIPELINING not in tnt.ParallelStrategy.DATA
    assert not tnt.ParallelStrategy.NONE & tnt.ParallelStrategy.ALL


def test_bytes_that_are_no_text_are_taken_and_named(monkeypatch):
    """Found by fuzzing: file names and variables may be any bytes, and were a TypeError of the extension."""
    name = os.fsdecode(b"a\xff.jsonl")
    monkeypatch.setenv("TNT_FINGERPRINT", name)
    assert settings.fingerprint() == Path(name)
    with pytest.raises(tnt.InvalidArgumentError, match=re.escape(f"TNT_TIMEOUT={name}: expected a number of seconds")):
        settings.check({"TNT_TIMEOUT": name})
    with pytest.raises(tnt.InvalidArgumentError, match="is not a setting of Tarantella"):
        settings.check({f"TNT_{name}": "1"})
