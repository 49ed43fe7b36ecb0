"""The recipes of packaging/ agree with the package and with each other. Nothing is built: `tools/container` does that."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
PACKAGING = ROOT / "packaging"


@pytest.fixture(scope="module")
def container() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    return importlib.import_module("release.container")


# --------------------------------------------------------------------------------------------------------------- conda


def recipe(python: str) -> dict:
    """As conda-build reads it. In its first pass it knows no interpreter and no compiler yet: they are empty."""
    jinja2, yaml = pytest.importorskip("jinja2"), pytest.importorskip("yaml")
    text = (PACKAGING / "conda/meta.yaml").read_text()

    def load_file_regex(*, load_file: str, regex_pattern: str, from_recipe_dir: bool) -> re.Match[str] | None:
        assert from_recipe_dir, "the checkout is not where conda-build works in its first pass"
        return re.search(regex_pattern, (PACKAGING / "conda" / load_file).read_text())

    known = {"load_file_regex": load_file_regex, "compiler": str, "stdlib": str, "PYTHON": python}
    return yaml.safe_load(jinja2.Environment().from_string(text).render(known))


@pytest.mark.parametrize("python", ["", "/prefix/bin/python"])
def test_the_recipe_is_read(python):
    found = recipe(python)
    assert found["package"] == {"name": "tarantella", "version": importlib.metadata.version("tarantella")}
    assert found["build"]["script"].startswith(f"{python} -m pip install . ".strip())


def normalised(requirements: list[str]) -> set[tuple[str, ...]]:
    """Name and conditions of each, without extras."""
    parted = (re.fullmatch(r"([\w-]+)\s*\(?([^;)]*)\)?.*", requirement) for requirement in requirements)
    return {(found[1], *sorted(found[2].replace(" ", "").split(","))) for found in parted if found}


def test_the_recipe_requires_what_the_package_requires():
    requirements = recipe("python")["requirements"]
    asked = importlib.metadata.requires("tarantella") or []
    assert normalised(requirements["run"]) - normalised(["python >=3.10"]) == normalised([r for r in asked if "extra" not in r])
    assert normalised(requirements["run_constrained"]) == normalised([r for r in asked if re.search(r"extra == .cpu.", r)])
    of_build = re.search(r"^requires = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert of_build and normalised(re.findall(r'"(.*?)"', of_build[1])) <= normalised(requirements["host"])


def test_the_recipe_sets_options_that_there_are():
    options = re.findall(r"cmake\.define\.(\w+)=", recipe("python")["build"]["script"])
    sources = "".join(
        (ROOT / file).read_text()
        for file in ("CMakeLists.txt", "src/CMakeLists.txt", "src/device/cuda/cuda.cmake")
        if (ROOT / file).exists()
    )
    assert options
    assert not [option for option in options if option not in sources]


def test_conda_is_told_which_system_packages_are_for():
    """Without it conda-build asks for a package that does not exist: `c_linux-64`."""
    assert re.search(r"^c_stdlib:\n  - sysroot\n", (PACKAGING / "conda/conda_build_config.yaml").read_text(), re.MULTILINE)


# ---------------------------------------------------------------------------------------------------------- containers


def commands(steps: list[tuple[str, str]]) -> list[list[str]]:
    """The commands of each stage's RUN, in a Containerfile joined by &&."""
    stages: list[list[str]] = []
    for instruction, arguments in steps:
        if instruction == "FROM":
            stages.append([])
        elif instruction == "RUN":
            stages[-1] += [" ".join(command.split()) for command in arguments.split("&&")]
    return stages


def test_apptainer_runs_the_steps_of_the_containerfile(container):
    of_file = list(container.steps(container.FILE.read_text()))
    of_definition = list(container.definition_steps(container.DEFINITION.read_text()))
    assert commands(of_file) == commands(of_definition)
    assert len(commands(of_file)) == 2
    images = [arguments.split()[0] for instruction, arguments in of_file if instruction == "FROM"]
    assert images == [arguments.split()[0] for instruction, arguments in of_definition if instruction == "FROM"]
    for of_steps in (of_file, of_definition):
        assert [arguments for instruction, arguments in of_steps if instruction == "ENV"] == [
            "PATH=/opt/tarantella/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        ]
        assert ("COPY", "--from=build /wheels /wheels") in of_steps


def test_the_page_names_the_packages_of_the_containerfile(container):
    page = (ROOT / "docs/install.md").read_text().replace("\\\n", " ")
    of_page = re.search(r"^apt install (.*)$", page, re.MULTILINE)
    of_file = re.search(r"--no-install-recommends (.*)", commands(list(container.steps(container.FILE.read_text())))[0][1])
    assert of_page and of_file
    assert set(of_page[1].split()) == set(of_file[1].split()) - {"ca-certificates"}


def test_an_image_gets_nothing_that_git_ignores():
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/")}
    assert ignored <= set((ROOT / ".dockerignore").read_text().splitlines())


@pytest.mark.parametrize("text", ["Bootstrap: docker\nFrom: debian:12\nStage: a\n\n%labels\n    Author x\n"])
def test_a_section_that_is_not_run_is_an_error(container, text):
    with pytest.raises(ValueError, match="%labels"):
        list(container.definition_steps(text))
