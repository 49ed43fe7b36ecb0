"""Checkpoints of which each rank writes a part: their files, in one process."""

from __future__ import annotations

import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tarantella.keras.checkpoint import parts
from tarantella.keras.checkpoint.folder import Folder

VALUES = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1.5, -2.0], ml_dtypes.bfloat16), np.array(7, np.int64)]


def write_in_parts(folder: Folder, step: int, scale: int = 1) -> Path:
    """A checkpoint of three variables on two ranks: the second one has two of them."""
    own = folder.begin_parts(step)
    parts.write(own, 0, VALUES[:1])
    parts.write(own, 1, [value * scale for value in VALUES[1:]])
    items = [
        {"path": f"v{i}", "part": int(i > 0), "name": f"values.{max(i - 1, 0)}", "shape": list(v.shape), "dtype": v.dtype.name}
        for i, v in enumerate(VALUES)
    ]
    checksums = parts.wait_for(own, 2, threading.Event(), 10)
    described = {"folder": own.name, "checksums": checksums}
    folder.write(step, {"step": step, "variables": {"weights": items}, "parts": described})
    return own


def test_parts_are_read_when_they_are_needed(tmp_path):
    write_in_parts(Folder(tmp_path, 1, 2, print), 3)
    _, tree = Folder(tmp_path, 1, 2, print).newest()
    assert list(tree) == ["format", "version", "step", "variables"]
    assert tree["version"] == 2
    for item, value in zip(tree["variables"]["weights"], VALUES, strict=True):
        assert isinstance(item["value"], parts.StoredArray)
        read = np.asarray(item["value"])
        assert (read.dtype, read.shape, read.tobytes()) == (value.dtype, value.shape, value.tobytes())
        assert list(item) == ["path", "value"]


def test_a_checkpoint_whose_parts_are_not_its_own_is_not_used(tmp_path):
    warnings: list[str] = []
    folder = Folder(tmp_path, 1, 2, warnings.append)
    write_in_parts(folder, 1)
    own, others = write_in_parts(folder, 2), write_in_parts(Folder(tmp_path / "other", 1, 2, print), 2, scale=3)
    whole = (own / "part1.npz").read_bytes()
    for content, why in (
        ((others / "part1.npz").read_bytes(), "part1.npz is not the part that belongs to it"),
        (whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], "part1.npz is damaged: its checksum is not that of its bytes"),
        (None, "part1.npz is missing"),
    ):
        (own / "part1.npz").unlink(missing_ok=True)
        if content is not None:
            (own / "part1.npz").write_bytes(content)
        path, _ = Folder(tmp_path, 1, 2, warnings.append).newest()
        assert path.name == "fit1-step000000001.npz"
        assert why in warnings.pop()
    (own / "part1.npz").write_bytes(whole)
    assert Folder(tmp_path, 1, 2, warnings.append).newest()[1]["step"] == 2
    assert warnings == []


@pytest.mark.parametrize("change", [{"part": 2}, {"shape": "x"}, {"dtype": "nonsense"}, {"name": None}])
def test_a_description_that_does_not_fit_its_parts_is_damage(tmp_path, change):
    warnings: list[str] = []
    folder = Folder(tmp_path, 1, 2, print)
    own = folder.begin_parts(1)
    parts.write(own, 0, VALUES)
    described = {"folder": own.name, "checksums": parts.wait_for(own, 1, threading.Event(), 10)}
    item = {"path": "v", "part": 0, "name": "values.0", "shape": [2, 3], "dtype": "float32", **change}
    folder.write(1, {"variables": {"weights": [item]}, "parts": described})
    assert Folder(tmp_path, 1, 2, warnings.append).newest() is None
    assert "is damaged" in warnings[0]


def test_parts_go_with_their_checkpoint(tmp_path):
    folder = Folder(tmp_path, 1, 2, print)
    replaced = write_in_parts(folder, 1)
    kept = [write_in_parts(folder, step).name for step in (1, 2, 3)][1:]
    assert not replaced.exists()
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [*kept, "fit1-step000000002.npz", "fit1-step000000003.npz"]
    )
    unfinished = folder.begin_parts(4)
    parts.write(unfinished, 0, VALUES)
    assert Folder(tmp_path, 1, 2, print).newest()[1]["step"] == 3
    assert not unfinished.exists()  # of a job that was killed


def test_a_part_that_does_not_come_is_named(tmp_path):
    own = Folder(tmp_path, 1, 2, print).begin_parts(1)
    parts.write(own, 0, VALUES)
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(parts.PartMissingError, match="the part of rank 1, has not appeared"):
        parts.wait_for(own, 2, given_up, 10)


def test_a_folder_that_a_rank_does_not_see(tmp_path):
    with pytest.raises(FileNotFoundError, match="rank 3 does not see it: all ranks must see the same folder"):
        parts.write(tmp_path / "fit1-step000000001.12345678", 3, VALUES)
