"""`hvd.elastic` under ``tarantella --elastic``: ranks go on without those that were lost, in the same processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.launch import RANKS, Result, run_ranks

SCRIPT = RANKS / "horovod/horovod_generations.py"


def train(ranks: int, folder: Path, plan: str, *options: str, flags: Any = ()) -> Result:
    launcher_options = ["--horovod", "--elastic", *flags]
    return run_ranks(ranks, SCRIPT, folder, plan, *options, launcher_options=launcher_options, timeout=120).good()


def found_in(folder: Path) -> dict[int, dict[str, Any]]:
    """What ranks have found that were left in the end, by the numbers with which they started."""
    return {int(file.stem): json.loads(file.read_text()) for file in sorted(folder.glob("[0-9].json"))}


@pytest.mark.parametrize(
    ("form", "began"),
    {"loop": [[0, 3], [0, 2], [1, 1]], "fit": [[0, 3], [1, 2], [2, 1]]}.items(),
)
def test_ranks_go_on_from_the_last_commit(tmp_path: Path, form: str, began: list[list[int]]):
    result = train(3, tmp_path, "1:5,0:10", form)
    found = found_in(tmp_path)
    assert found.keys() == {2}, result.said
    assert found[2]["error"] < 1e-5, result.said
    assert found[2]["resets"] == [2, 1]
    assert found[2]["places"] == [0, 1, 1]
    assert [[epoch, size] for epoch, _, _, size in found[2]["began"]] == began


@pytest.mark.parametrize("form", ["loop", "fit"])
def test_a_newcomer_joins(tmp_path: Path, form: str):
    result = train(2, tmp_path, "1:3", form, "wait", flags=["--replacements", 1])
    found = found_in(tmp_path)
    assert found.keys() == {0, 2}, result.said
    assert all(one["error"] < 1e-5 for one in found.values()), result.said
    assert found[0]["resets"] == [1, 2]  # without the one that was lost, and with the newcomer
    assert found[2]["resets"] == []
    assert found[2]["places"] == [1, 2, 2]
    assert found[0]["began"][-1][:2] == found[2]["began"][0][:2]
