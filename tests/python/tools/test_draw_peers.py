"""The figures of peers on the page are those of the committed results."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from support.checkouts import TOOLS

ROOT = TOOLS.parent
RESULTS = [ROOT / f"benchmarks/results/cpu-2core{peer}.jsonl" for peer in ("", "-openmpi5", "-mpich4", "-mpich5", "-gloo")]


@pytest.fixture
def draw_peers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module("draw_peers")


def test_the_table_of_the_page(draw_peers, capsys: pytest.CaptureFixture[str]) -> None:
    draw_peers.main([*map(str, RESULTS), "--table"])
    rows = capsys.readouterr().out
    assert rows.count("\n") == len(RESULTS) and rows in (ROOT / "docs/benchmark.md").read_text()


def test_a_picture(draw_peers, tmp_path: Path) -> None:
    draw_peers.main([str(RESULTS[0]), str(tmp_path / "peers.png")])
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")
