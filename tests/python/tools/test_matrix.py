"""`tools/matrix`: which cells it has, what it refuses, and the table that it writes."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tarantella import versions

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    return importlib.import_module("release.matrix")


def run(*words: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHON": sys.executable, **({"PATH": f"{path}:/usr/bin:/bin"} if path else {})}
    return subprocess.run([ROOT / "tools/matrix", *map(str, words)], env=env, capture_output=True, text=True, check=False)


def test_every_promised_tensorflow_has_an_old_a_new_and_a_legacy_keras(matrix):
    tensorflow, keras = versions.supported("tensorflow"), versions.supported("keras")
    promised = [f"2.{minor}" for minor in range(tensorflow.first[1], tensorflow.end[1])]
    by_tensorflow = {name: list(cells) for name, cells in itertools.groupby(matrix.CELLS, lambda cell: cell.tensorflow)}
    assert list(by_tensorflow) == promised
    for cells in by_tensorflow.values():
        old, new, legacy = (cell.keras for cell in cells)
        assert keras.first <= versions.number(old) < versions.number(new) == (3, keras.end[1] - 1)
        assert legacy == matrix.LEGACY
    assert {cell.python for cell in matrix.CELLS} == {"3.10", "3.11", "3.12", "3.13"}
    assert any(versions.number(cell.keras) == keras.first for cell in matrix.CELLS if cell.keras != matrix.LEGACY)


def test_cells_have_names_of_their_own(matrix):
    names = run("--list").stdout.split()
    assert names == [cell.name for cell in matrix.CELLS]
    assert len(set(names)) == len(names)
    assert "tf2.21-keras3.15-py313" in names


def test_an_unknown_cell_is_refused():
    done = run("--only", "tf1.15")
    assert done.returncode == 2
    assert done.stderr == "tools/matrix: no cell is called tf1.15: --list shows all\n"


def test_a_python_that_is_not_there_is_named(tmp_path):
    (tmp_path / "python3.13").write_text("#!/bin/sh\nexit 127\n")  # a stub that knows no such version
    (tmp_path / "python3.13").chmod(0o755)
    done = run("--only", "tf2.21-keras3.15-py313", path=tmp_path)
    assert done.returncode == 1
    message = "no Python 3.13 was found, which tf2.21-keras3.15-py313 needs: --python PATH names one"
    assert done.stderr == f"tools/matrix: {message}\n"


def test_an_interpreter_that_does_not_run_is_named():
    done = run("--only", "tf2.16-*", "--python", "/nowhere/python")
    assert (
        done.stderr == "tools/matrix: /nowhere/python is not a program that can be run: give the path of a Python interpreter\n"
    )


def test_the_table(matrix):
    found = {"tensorflow": "2.16.2", "keras": "3.2.1", "python": "3.10", "legacy": False, "numpy": "1.26.4", "test_s": 70}
    results = {
        "tf2.16-keras3.2-py310": {**found, "passed": 19, "failed": 0},
        "tf2.16-tf_keras-py311": {**found, "keras": "2.16.0", "python": "3.11", "legacy": True, "passed": 11, "failed": 1},
    }
    page = matrix.with_table("# Versions\n\n<!-- table -->\nold\n<!-- end -->\nrest\n", results)
    assert page.splitlines() == [
        "# Versions",
        "",
        "<!-- table -->",
        "",
        "| TensorFlow | Keras | Python | NumPy | passed | seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 2.16.2 | 3.2.1 | 3.10 | 1.26.4 | 19 | 70 |",
        "| 2.16.2 | tf_keras 2.16.0 | 3.11 | 1.26.4 | 11, **1 failed** | 70 |",
        "",
        "<!-- end -->",
        "rest",
    ]


def test_the_table_keeps_the_rows_of_other_checkouts(matrix):
    kept = [
        "| 2.16.1 | 3.15.1 | 3.12 | 1.26.4 | 18 | 9 |",
        "| 2.16.2 | tf_keras 2.16.0 | 3.11 | 1.26.4 | 13 | 9 |",
        "| 2.17.1 | 3.2.1 | 3.12 | 1.26.4 | 18 | 9 |",
    ]
    of_no_cell = "| 2.15.0 | 3.2.1 | 3.12 | 1.26.4 | 18 | 9 |"
    page = "\n".join(["<!-- table -->", "| 2.16.2 | 3.2.0 | 3.10 | 1.26.4 | 1 | 9 |", of_no_cell, *kept, "<!-- end -->\n"])
    found = {"tensorflow": "2.16.2", "keras": "3.2.1", "python": "3.10", "legacy": False, "numpy": "1.26.4", "test_s": 70}
    page = matrix.with_table(page, {"tf2.16-keras3.2-py310": {**found, "passed": 19, "failed": 0}})
    assert page.splitlines()[4:-2] == ["| 2.16.2 | 3.2.1 | 3.10 | 1.26.4 | 19 | 70 |", *kept]
