"""Without -n: a rank for each GPU of this node, or one."""

from __future__ import annotations

import pytest

from tarantella.launcher.command_line import options
from tarantella.launcher.command_line.devices import visible_gpus


@pytest.mark.parametrize(
    ("present", "visible", "count"),
    [(0, None, 0), (4, None, 4), (4, "0,2", 2), (4, "", 0), (4, "-1", 0), (4, "1, -1, 2", 1), (2, "0,1,2,3", 2), (0, "0", 0)],
)
def test_gpus_that_ranks_would_see(tmp_path, present, visible, count):
    for i in range(present):
        (tmp_path / f"0000:0{i}:00.0").mkdir()
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert visible_gpus(environment, tmp_path) == count
    assert visible_gpus(environment, tmp_path / "none") == 0


@pytest.mark.parametrize(("words", "gpus", "ranks"), [("", 0, 1), ("", 3, 3), ("--no-gpu", 3, 1), ("-n 2", 3, 2)])
def test_ranks_without_n(monkeypatch, tmp_path, words, gpus, ranks):
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setattr(options, "visible_gpus", lambda: gpus)
    assert options.parse([*words.split(), "--", str(script)]).ranks == ranks
