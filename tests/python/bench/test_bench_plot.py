"""tnt-bench plot: what is drawn from which rows, and the one line that a file or a missing matplotlib gets."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tarantella.bench import plot
from tarantella.bench.rows import BadFileError, read_rows

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")


def row(size: int, in_place: bool = False, **changes: Any) -> dict[str, Any]:
    """A line as tnt-bench writes it."""
    time = 0.5 + size / 8000
    bandwidth = size / time * 1e-3
    return {
        "schema": "tnt-bench/1",
        "collective": "all_reduce",
        "backend": "shm",
        "ranks": 2,
        "bytes": size,
        "dtype": "float32",
        "op": "sum",
        "in_place": in_place,
        "cache": "rotate",
        "time_us_p50": time,
        "time_us_p95": 1.1 * time,
        "algbw_gbps": bandwidth,
        "busbw_gbps": bandwidth,
        "limit_percent": 100 * bandwidth / 12,
        "wrong": 0,
        "check": "ok",
        "against": "mpi",
        "against_time_us_p50": 3 * time,
        "ratio": 3.0,
        "environment": {"tarantella": "0.1.0", "cpu": "AMD EPYC", "cores": "2", "nccl": "not available"},
    } | changes


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(fields) + "\n" for fields in rows), encoding="utf-8")
    return path


SIZES = [4**power for power in range(1, 14)]


@needs_matplotlib
def test_a_picture_is_drawn(tmp_path: Path) -> None:
    rows = [row(size, in_place) for size in SIZES for in_place in (False, True)]
    output = tmp_path / "bench.png"
    assert plot.main([str(write(tmp_path / "a.jsonl", rows)), "-o", str(output)]) == 0
    assert output.read_bytes().startswith(b"\x89PNG")
    assert output.stat().st_size > 20_000


@needs_matplotlib
@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": 1, "busbw_gbps": 0.0},
        {"limit_percent": None},
        {"against": None, "against_time_us_p50": None, "ratio": None},
        {"algbw_gbps": None, "busbw_gbps": None, "limit_percent": None},
        {"environment": {}},
    ],
)
def test_absent_figures_are_left_out(tmp_path: Path, changes: dict[str, Any], recwarn: pytest.WarningsRecorder) -> None:
    output = tmp_path / "bench.svg"
    assert plot.main([str(write(tmp_path / "a.jsonl", [row(size, **changes) for size in SIZES])), "-o", str(output)]) == 0
    assert output.exists()


@needs_matplotlib
def test_what_the_picture_says(tmp_path: Path) -> None:
    rows = [row(size, in_place, backend=backend) for size in SIZES for in_place in (False, True) for backend in ("shm", "mpi")]
    output = tmp_path / "bench.svg"
    matplotlib = importlib.import_module("matplotlib")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot.draw(read_rows([write(tmp_path / "a.jsonl", rows)]), output)
    text = output.read_text(encoding="utf-8")
    for words in (
        "all_reduce of float32 on 2 ranks",
        "AMD EPYC, 2 cores · Tarantella 0.1.0",
        "shm, out of place",
        "shm, in place",
        "mpi, in place",
        "plain MPI, out of place",
        "limit of the memory",
        "12 GB/s",
        "Bus bandwidth",
        "64M",
    ):
        assert words in text, words
    assert "not available" not in text


@needs_matplotlib
def test_an_output_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write(tmp_path / "a.jsonl", [row(4)])
    for output in (tmp_path / "bench.nonsense", tmp_path / "missing" / "bench.png"):
        assert plot.main([str(rows), "-o", str(output)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"tnt-bench plot: -o {output}: ") and said.count("\n") == 1, said


def test_without_matplotlib_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plot.main([str(write(tmp_path / "a.jsonl", [row(4)])), "-o", str(tmp_path / "x.png")]) == 2
    assert capsys.readouterr().err == "tnt-bench plot: needs matplotlib: pip install matplotlib\n"


def test_matplotlib_is_not_imported_before_it_is_needed() -> None:
    for module in (plot, sys.modules["tarantella.bench.rows"]):
        assert "matplotlib" not in vars(module)


@pytest.mark.parametrize("line", ["hello", "[]", "{}", '{"schema": "tnt-bench/2"}', '{"schema": "tnt-bench/1"}', "null"])
def test_bad_files_are_named_with_the_line(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "a.jsonl", [row(4)])
    path.write_text(path.read_text(encoding="utf-8") + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(BadFileError, match=r"a\.jsonl:3: no row of tnt-bench"):
        read_rows([path])


def test_files_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadFileError, match="cannot be read"):
        read_rows([tmp_path / "missing.jsonl"])
    with pytest.raises(BadFileError, match="no rows"):
        read_rows([write(tmp_path / "empty.jsonl", [])])
    barrier = write(tmp_path / "barrier.jsonl", [row(0)])
    assert plot.main([str(barrier), "-o", str(tmp_path / "x.png")]) == 2
    assert "no row has a size" in capsys.readouterr().err


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert plot.main([]) == 2
    assert capsys.readouterr().err.startswith("tnt-bench plot: ")
    assert plot.main(["--nonsense", "a"]) == 2
    assert "--nonsense" in capsys.readouterr().err
    assert plot.main(["--help"]) == 0
    assert "-o" in capsys.readouterr().out


def test_sizes_are_shown_in_binary() -> None:
    assert [plot.format_size(value) for value in (4, 1024, 1536, 64 << 20, 3 << 30)] == ["4", "1K", "1.5K", "64M", "3G"]
