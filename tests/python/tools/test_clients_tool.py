"""`tools/clients`: its scripts, what it refuses, how it compares numbers, and the table that it writes."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def clients() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    return importlib.import_module("release.clients")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run([ROOT / "tools/clients", *words], env=env, capture_output=True, text=True, check=False)


def test_each_script_is_a_client(clients):
    scripts = {file.stem for file in (ROOT / "tests/clients").glob("*.py")} - {"client"}
    assert {client.script for client in clients.CLIENTS} == scripts
    assert run("--list").stdout.split() == [client.script for client in clients.CLIENTS]


def test_a_client_that_is_not_there_is_named():
    result = run("--only", "fortran")
    assert result.returncode == 2
    assert "no client is called fortran: --list shows all" in result.stderr


def test_numbers_must_be_the_same(clients):
    assert clients.difference_of([1.0, 1000.0], [1.0, 1000.01]) == pytest.approx(1e-5)
    assert clients.difference_of([0.1], [0.1]) == 0
    assert clients.difference_of([1.0], [1.0, 2.0]) == math.inf
    assert clients.difference_of([1.0], [math.nan]) == math.inf


def test_a_failing_install_is_told(clients, monkeypatch, tmp_path):
    def refuse(*words: object, **options: object) -> None:
        raise clients.ReleaseError("pip failed with exit code 1\nno such package")

    monkeypatch.setattr(clients, "run", refuse)
    monkeypatch.setattr(clients, "FOLDER", tmp_path)
    found = clients.try_client(clients.CLIENTS[0])
    assert found == {"version": "", "passed": False, "said": "no such package"}


def test_the_table_has_what_was_tried(clients):
    tried = {
        "optuna_study": {"version": "4.5", "passed": True, "said": "the same numbers"},
        "mlflow_autolog": {"version": "", "passed": False, "said": "no such package"},
    }
    text = clients.with_table("before\n<!-- table -->\n\nold\n\n<!-- end -->\nafter\n", tried)
    assert text.startswith("before\n") and text.endswith("<!-- end -->\nafter\n")
    assert "| optuna | 4.5 |" in text
    assert "**no**: no such package" in text
    assert "old" not in text and "bayesflow" not in text
    again = clients.with_table(text, {"optuna_study": {"version": "5.0", "passed": True, "said": "equal"}})
    assert "| optuna | 5.0 |" in again and "| optuna | 4.5 |" not in again
    assert "**no**: no such package" in again  # the row of a client that was not tried now
