"""python -m tarantella.bench: starts the tnt-bench of this installation, with the same words and the same exit code."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

bench = importlib.import_module("tarantella.bench.__main__")


def test_becomes_the_installed_program(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: calls.append((program, words)))
    bench.main(["all_reduce", "--ranks", "2"])
    (program, words) = calls[0]
    assert program.parts[-3:] == ("tarantella", "bin", "tnt-bench")
    assert words == [str(program), "all_reduce", "--ranks", "2"]


def test_without_the_program_one_line_says_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "executable", lambda: tmp_path / "tnt-bench")
    assert bench.main(["all_reduce"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tnt-bench: cannot start {tmp_path / 'tnt-bench'}: No such file or directory; this package was")
    assert said.count("\n") == 1


def test_plot_stays_in_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["plot", str(tmp_path / "missing.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("tnt-bench plot: ")
