"""Tries the package with each TensorFlow, Keras and Python that it promises: `tools/matrix`.

A cell is an environment with wheels from PyPI and ours, in which tests/versions runs. The outcome of each is kept in
build/release/matrix.json, from which the table in docs/versions.md is written.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from release import build
from release.environments import FOLDER, ROOT, Environment, Interpreters, ReleaseError, run, said

LEGACY = "tf_keras"
RESULTS = FOLDER / "matrix.json"
PAGE = ROOT / "docs" / "versions.md"
SECONDS = 900
TEST_PACKAGES = ("pytest>=8", "pytest-timeout", "hypothesis", "tensorboard", "requests")
QUICK = {"TNT_BUILD_BENCHMARKS": "OFF", "TNT_CUDA": "OFF", "TNT_HIP": "OFF"}


@dataclass(frozen=True)
class Cell:
    """Versions that are tried together."""

    tensorflow: str
    keras: str
    """Of Keras 3, or `LEGACY` for the legacy Keras of that TensorFlow."""
    python: str

    @property
    def name(self) -> str:
        keras = LEGACY if self.keras == LEGACY else f"keras{self.keras}"
        return f"tf{self.tensorflow}-{keras}-py{self.python.replace('.', '')}"


# Each TensorFlow with the oldest Keras 3 that it and we accept, with the newest, and with its legacy Keras. Each Python occurs
# with TensorFlows of which it has wheels (3.13: from 2.20 on) and with old, new and legacy Keras. Keras 3.13 needs Python 3.11,
# and legacy Keras before 2.19 does not work on 3.12.
CELLS = [
    Cell(tensorflow, *rest)
    for tensorflow, cells in {
        "2.16": [("3.2", "3.10"), ("3.15", "3.12"), (LEGACY, "3.11")],
        "2.17": [("3.2", "3.12"), ("3.15", "3.11"), (LEGACY, "3.10")],
        "2.18": [("3.5", "3.10"), ("3.15", "3.11"), (LEGACY, "3.11")],
        "2.19": [("3.5", "3.11"), ("3.15", "3.12"), (LEGACY, "3.10")],
        "2.20": [("3.10", "3.13"), ("3.15", "3.12"), (LEGACY, "3.13")],
        "2.21": [("3.12", "3.10"), ("3.15", "3.13"), (LEGACY, "3.12")],
    }.items()
    for rest in cells
]


TENSORFLOWS = tuple(dict.fromkeys(cell.tensorflow for cell in CELLS))


def main() -> int:
    parser = argparse.ArgumentParser("tools/matrix", description="Tries each TensorFlow, Keras and Python that is promised.")
    parser.add_argument("--only", nargs="+", metavar="CELL", default=["*"], help="cells, such as 'tf2.16-*'")
    parser.add_argument("--python", nargs="+", default=[], help="interpreters, beside python3.10, python3.11 ... of PATH")
    parser.add_argument("--keep", action="store_true", help="keep the environments (1.5 GB each)")
    parser.add_argument("--list", action="store_true", help="print the cells and end")
    arguments = parser.parse_args()
    cells = [cell for cell in CELLS if any(fnmatch.fnmatch(cell.name, only) for only in arguments.only)]
    if not cells:
        print(f"tools/matrix: no cell is called {' or '.join(arguments.only)}: --list shows all", file=sys.stderr)
        return 2
    if arguments.list:
        print(*(cell.name for cell in cells), sep="\n")
        return 0
    try:
        return run_cells(cells, Interpreters(arguments.python), arguments.keep)
    except ReleaseError as error:
        print(f"tools/matrix: {error}", file=sys.stderr)
        return 1


def run_cells(cells: list[Cell], interpreters: Interpreters, keep: bool) -> int:
    """Runs them one after the other, and writes the table after each. Returns the exit code."""
    for cell in cells:
        if interpreters.find(cell.python) is None:
            raise ReleaseError(f"no Python {cell.python} was found, which {cell.name} needs: --python PATH names one")
    kinds = sorted({build.kind(cell.python) for cell in cells})
    wheels = {python: build.wheel(python, interpreters, QUICK, FOLDER / "quick") for python in kinds}
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for cell in cells:
        results[cell.name] = try_cell(cell, wheels[build.kind(cell.python)], interpreters, keep)
        RESULTS.write_text(json.dumps(results, indent=1))
        PAGE.write_text(with_table(PAGE.read_text(), results))
    wrong = [cell.name for cell in cells if results[cell.name]["failed"]]
    print(f"{len(cells) - len(wrong)} of {len(cells)} cells passed" + f"; failed: {', '.join(wrong)}" * bool(wrong))
    return 1 if wrong else 0


def try_cell(cell: Cell, wheel: Path, interpreters: Interpreters, keep: bool) -> dict[str, Any]:
    """Makes the environment, runs the tests, and returns what came of it."""
    start, logs = time.monotonic(), FOLDER / "log" / cell.name
    environment = Environment(FOLDER / "cells" / cell.name, interpreters.find(cell.python) or "", logs / "install.log")
    try:
        keras = "3.2" if cell.keras == LEGACY else f"{cell.keras}.0"
        end = "4" if cell.keras == LEGACY else f"{cell.keras}.999"
        requirements = [f"tensorflow-cpu=={cell.tensorflow}.*", f"keras>={keras},<={end}"]
        environment.install(*requirements, wheel, *TEST_PACKAGES)
        if cell.keras == LEGACY:  # which depends on the package `tensorflow`, also beside tensorflow-cpu
            environment.install("--no-deps", f"tf_keras=={cell.tensorflow}.*")
        installed, tested = time.monotonic() - start, time.monotonic()
        env = {"PYTHONPATH": str(ROOT / "tests" / "python"), "TF_USE_LEGACY_KERAS": "1" if cell.keras == LEGACY else "0"}
        report = logs / "report.xml"
        report.unlink(missing_ok=True)
        command = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "tests/versions"]
        try:
            run(command, logs / "tests.log", env, SECONDS)
        except ReleaseError as error:
            if not report.exists():
                raise
            print(error)
        counts = _counts(report)
        found = {
            "tensorflow": environment.version("tensorflow-cpu"),
            "keras": environment.version("tf_keras" if cell.keras == LEGACY else "keras"),
            "python": cell.python,
            "legacy": cell.keras == LEGACY,
            "numpy": environment.version("numpy"),
            "install_s": round(installed),
            "test_s": round(time.monotonic() - tested),
            **counts,
        }
    finally:
        if not keep:
            environment.remove()
    said(start, f"{cell.name}: {counts['passed']} passed, {counts['failed']} failed")
    return found


def _counts(report: Path) -> dict[str, int]:
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    return {"passed": number["tests"] - failed - number["skipped"], "failed": failed}


def with_table(page: str, results: dict[str, Any]) -> str:
    """The page with the table of the results in the place of the old one."""
    rows = ["| TensorFlow | Keras | Python | NumPy | passed | seconds |", "| --- | --- | --- | --- | --- | --- |"]
    old = [line for line in page.splitlines() if line.startswith("| 2.")]
    for cell in CELLS:
        if found := results.get(cell.name):
            keras = f"{LEGACY} {found['keras']}" if found["legacy"] else found["keras"]
            outcome = f"{found['passed']}" if not found["failed"] else f"{found['passed']}, **{found['failed']} failed**"
            versions = f"| {found['tensorflow']} | {keras} | {found['python']} | {found['numpy']} "
            rows.append(f"{versions}| {outcome} | {found['test_s']} |")
        else:  # of another checkout, which has the results
            rows += [row for row in old if _is_of(cell, row)]
    table = "\n".join(rows)
    return re.sub(r"(<!-- table -->\n)(.*?)(<!-- end -->)", lambda m: f"{m[1]}\n{table}\n\n{m[3]}", page, flags=re.DOTALL)


def _is_of(cell: Cell, row: str) -> bool:
    tensorflow, keras, python = (word.strip() for word in row.split("|")[1:4])
    expected = f"{LEGACY} " if cell.keras == LEGACY else f"{cell.keras}."
    return tensorflow.startswith(f"{cell.tensorflow}.") and keras.startswith(expected) and python == cell.python


if __name__ == "__main__":
    sys.exit(main())
