"""The files that hosts of projects read: they name the one home of pyproject.toml and call what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
FORMS = sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"))


def home() -> str:
    found = re.search(r'^Homepage = "(.+)"$', PYPROJECT, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("name", ["SECURITY.md", "CITATION.cff", ".github/ISSUE_TEMPLATE/config.yml", "mkdocs.yml"])
def test_the_home_is_that_of_the_package(name: str) -> None:
    assert home() in (ROOT / name).read_text()


def test_the_citation_has_the_version() -> None:
    version = re.search(r"project\(tarantella VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert version is not None and f"\nversion: {version[1]}\n" in (ROOT / "CITATION.cff").read_text()


def test_ci_runs_what_contributors_run() -> None:
    workflow = (ROOT / ".github/workflows/tests.yml").read_text()
    assert re.search(r"run: \.ci/run$", workflow, re.MULTILINE) and (ROOT / ".ci/run").exists()


def test_hooks_before_a_commit_are_the_linters_of_the_tests() -> None:
    hooks = re.findall(r"entry: (?:\.venv/bin/)?([\w-]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    stages = (ROOT / "tools/stages/run").read_text()
    assert len(hooks) > 3 and all(hook in stages for hook in hooks)


def test_the_form_for_faults_asks_for_the_doctor() -> None:
    assert FORMS and any("tarantella doctor --json" in form.read_text() for form in FORMS if form.stem == "fault")
