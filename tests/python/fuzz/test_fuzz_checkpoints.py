"""Fuzzing of checkpoints whose checksum is right: a content that was checked, or one error that says that it is damaged."""

from __future__ import annotations

import hashlib
import io
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.mutations import changed, corpus, fuzzed
from tarantella.errors import InvalidArgumentError
from tarantella.keras.checkpoint import format as file_format
from tarantella.keras.checkpoint import layout

TREE = {
    "epoch": 3,
    "weights": [{"path": "a/kernel", "value": np.arange(6, dtype=np.float32).reshape(2, 3)}],
    "scalar": np.float64(0.1),
    "nothing": np.zeros((0, 3), np.int64),
}
JSON_WORDS = [b'{"array": "a"}', b'"array"', b'"dtype"', b"[", b"]", b"{", b"}", b'"', b",", b":", b"null", b"NaN", b"1e999"]
JSON_WORDS += [b"-1", b"\xff"]
ZIP_WORDS = [b"\x00" * 4, b"\xff" * 4, b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"]
FILE_WORDS = [*ZIP_WORDS, b"(2, 3)", b"(9999999999,)", b"'|O'", b"'<U9'", b"-1", b"\x93NUMPY"]
END = len(b"sha256:") + 64


def _written() -> bytes:
    file = io.BytesIO()
    file_format.write(file, TREE)
    return file.getvalue()


WRITTEN = _written()


def with_text(text: bytes) -> bytes:
    """A checkpoint with two arrays, a and b, and this description."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.comment = b"sha256:" + b"0" * 64
        archive.writestr("checkpoint.json", text)
        for name, array in {"a": np.arange(4.0), "b": np.array([1, 2], np.uint16)}.items():
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())
    return file.getvalue()


def check(path: Path, content: bytes) -> None:
    """What is read of the bytes, with a checksum that is right."""
    kept = content[:-64]
    path.write_bytes(kept + hashlib.sha256(kept).hexdigest().encode())
    with suppress(file_format.DamagedError, InvalidArgumentError):
        tree = file_format.read(path)
        assert isinstance(tree, dict)
        layout.check(tree)


@fuzzed
@given(text=changed(corpus("fuzz_checkpoints"), JSON_WORDS))
def test_manifests(tmp_path, text: bytes) -> None:
    check(tmp_path / "fit1-step000000001.npz", with_text(text))


@fuzzed
@given(content=changed([WRITTEN[:-END]], FILE_WORDS))
def test_files(tmp_path, content: bytes) -> None:
    check(tmp_path / "fit1-step000000001.npz", content + b"sha256:" + b"0" * 64)


@fuzzed
@given(content=changed([WRITTEN], FILE_WORDS), cut=st.integers(0, 80))
def test_files_with_a_wrong_checksum(tmp_path, content: bytes, cut: int) -> None:
    path = tmp_path / "fit1-step000000001.npz"
    path.write_bytes(content[: len(content) - cut])
    try:
        file_format.read(path)
    except file_format.DamagedError:
        return
    assert content[: len(content) - cut] == WRITTEN
