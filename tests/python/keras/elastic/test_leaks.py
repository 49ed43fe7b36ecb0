"""Ranks that are lost and replaced leave nothing behind in those that stay, and in the launcher."""

from __future__ import annotations

import json
from pathlib import Path

from support.launch import RANKS, run_ranks
from support.leaks import grown

KILLS = 4


def test_losses_and_joins_leave_nothing_behind(tmp_path: Path):
    options = ["--elastic", "--replacements", KILLS]
    result = run_ranks(2, RANKS / "keras/elastic_leaks.py", tmp_path, KILLS, launcher_options=options, timeout=120).good()
    found = json.loads((tmp_path / "held.json").read_text())
    assert len(found) == KILLS + 1, result.said
    assert not grown(found), found


def test_what_has_grown_is_found():
    held = {"descriptors": 9, "threads": 4, "maps": 100, "shared": 6, "resident": 300}
    found = [{"rank": held} for _ in range(4)]
    assert not grown(found)
    for name, more in {"descriptors": 1, "threads": 2, "maps": 12, "shared": 1, "resident": 13}.items():
        assert grown([*found[:3], {"rank": {**held, name: held[name] + more}}]), name
    ending = {"rank": {**held, "threads": held["threads"] + 11}}
    assert not grown([*found, ending])
    assert grown([*found[:3], ending, ending, ending])
