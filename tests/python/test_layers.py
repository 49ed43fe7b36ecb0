"""The structure of the code: arrows between rooms go down only, files form no circle, and nothing is too large.

The layers are written down here once, from the bottom. A room is a Python module, or a folder with all that is in it. Its
files may use one another and the rooms of lower layers. Rooms of one layer do not know one another. Lazy imports, and those
for type checkers alone, count like any other: a reader follows them all the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

Graph = dict[str, dict[str, int]]
"""For each file: the files it uses, each with the first line that does so."""

# rooms of python/tarantella; "." is its __init__.py, and "keras/." that of keras
PYTHON = [
    ["errors", "first_gradient", "installation", "interrupts", "start", "strategy", "variables", "vendors", "_native"],
    ["made_datasets", "mpi", "reporting", "settings", "flight", "versions"],
    ["environment", "threads", "horovod_name", "pipeline_schedule"],
    ["gpus", "runtime"],
    ["generations"],
    ["collectives"],
    ["recovery", "seeding", "tuning"],
    ["tensorflow_import", "trackers"],
    ["keras/."],
    ["keras/adapter", "keras/files"],
    ["keras/context"],
    ["keras/reduction"],
    ["keras/data", "keras/lengths", "keras/xla", "reduction"],
    ["keras/step", "compat"],
    ["keras/trial", "keras/reproducible", "keras/sharding"],
    ["keras/loops"],
    ["keras/callback_placement"],
    ["keras/checkpoint"],
    ["keras/elastic"],
    ["keras/callbacks", "keras/deferred", "keras/layers", "keras/schedules"],
    ["keras/drivers"],
    ["keras/pipeline"],
    ["keras/surrogate"],
    ["keras/model"],
    ["keras/models"],
    ["horovod"],
    ["launcher/base"],
    ["launcher/command_line"],
    ["launcher/show"],
    ["launcher/start"],
    ["launcher/watch"],
    ["launcher"],
    ["verify", "scaling", "inspection"],
    ["cli"],
    ["__main__"],
    ["."],
    ["bench"],
]

# folders of C, C++ and CUDA; a folder that is named here is a room of its own
CPP = [
    ["include/tarantella"],
    ["src/common", "python/extension", "examples"],
    ["kernels/cpu", "kernels/cuda", "src/base"],
    ["src/device"],
    ["src/device/cuda", "src/comm"],
    ["src/comm/shm", "src/comm/nccl", "src/comm/staged", "src/device/hip"],
    ["src/comm/network/messages"],
    ["src/comm/network/algorithms"],
    ["src/comm/network"],
    ["src/comm/mpi", "src/comm/tcp", "src/comm/hierarchical"],
    ["src/bootstrap", "src/reducer"],
    ["src/api"],
    ["benchmarks"],
]

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_METHODS = 25

# ------------------------------------------------------------------------------------------------- what uses what


def python_graph(package: Path) -> Graph:
    files = {f.relative_to(package).as_posix(): f for pattern in ("*.py", "*.pyi") for f in package.rglob(pattern)}
    modules = {_module(package.name, name): name for name in files}
    graph: Graph = {}
    for name, file in files.items():
        uses = graph[name] = {}
        for line, *candidates in _imports(ast.parse(file.read_text())):
            used = next((modules[module] for module in candidates if module in modules), name)
            if used != name:
                uses.setdefault(used, line)
    return graph


def _module(package: str, file: str) -> str:
    return f"{package}.{file}".rpartition(".")[0].replace("/", ".").removesuffix(".__init__")


def _imports(tree: ast.Module) -> Iterator[tuple[Any, ...]]:
    """The line of each import, wherever it stands, and what it may name: ``from a import b`` means a.b, or else a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute here"
            yield from ((node.lineno, f"{node.module}.{alias.name}", node.module) for alias in node.names)


def cpp_graph(root: Path, folders: Iterable[str]) -> Graph:
    suffixes = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")
    files = [f for folder in folders for f in sorted((root / folder).rglob("*")) if f.suffix in suffixes]
    names = {f.relative_to(root).as_posix() for f in files}
    graph: Graph = {}
    for file in files:
        uses = graph[file.relative_to(root).as_posix()] = {}
        for line, text in enumerate(file.read_text().splitlines(), 1):
            included = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', text)
            if included is None:
                continue
            for base in (file.parent, root / "src", root, root / "include", root / "benchmarks"):
                path = base / included[1]
                if path.is_file() and (name := path.resolve().relative_to(root).as_posix()) in names:
                    uses.setdefault(name, line)
                    break
    return graph


# ------------------------------------------------------------------------------------------------- what must be true


def room_of(file: str, rooms: Iterable[str]) -> str:
    """The innermost room that the file is in."""
    path = file.removesuffix("/__init__.py") + "/." if file.endswith("__init__.py") else file.rpartition(".")[0]
    path = "." if file == "__init__.py" else path
    fitting = [room for room in rooms if path in (room, f"{room}/.") or path.startswith(f"{room}/")]
    assert fitting, f"{file} is in no room: name its room in {Path(__file__).name}"
    return max(fitting, key=len)


def arrows_up(graph: Graph, layers: list[list[str]]) -> list[str]:
    height = {room: number for number, layer in enumerate(layers) for room in layer}
    found = []
    for file, uses in graph.items():
        room = room_of(file, height)
        for used, line in uses.items():
            other = room_of(used, height)
            if other != room and height[other] >= height[room]:
                found.append(f"{file}:{line} uses {used}, and {other} is not below {room}")
    return found


def circles(graph: Graph) -> list[str]:
    """The arrows from which others lead back to where they begin."""
    return [
        f"{file}:{line} uses {used}, which leads back to it"
        for file, uses in graph.items()
        for used, line in uses.items()
        if file in reachable(graph, used)
    ]


def reachable(graph: Graph, start: str) -> set[str]:
    found, left = {start}, [start]
    while left:
        new = graph[left.pop()].keys() - found
        found |= new
        left.extend(new)
    return found


def too_large(file: Path) -> Iterator[str]:
    text = file.read_text()
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{file}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(member, ast.FunctionDef) for member in node.body)
            if methods > MAX_METHODS:
                yield f"{file}:{node.lineno} {node.name} has {methods} methods"
        elif isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{file}:{node.lineno} {node.name} has {lines} lines"


@pytest.fixture(scope="module", params=["python", "C++"])
def structure(request: pytest.FixtureRequest) -> tuple[Graph, list[list[str]]]:
    if request.param == "python":
        return python_graph(ROOT / "python" / "tarantella"), PYTHON
    return cpp_graph(ROOT, ["include", "src", "kernels", "python/extension", "benchmarks", "examples"]), CPP


def test_arrows_go_down(structure):
    found = arrows_up(*structure)
    assert not found, "\n".join(found)


def test_files_form_no_circle(structure):
    found = circles(structure[0])
    assert not found, "\n".join(found)


def test_every_room_is_there(structure):
    graph, layers = structure
    rooms = [room for layer in layers for room in layer]
    assert sorted(rooms) == sorted({room_of(file, rooms) for file in graph})


@pytest.mark.parametrize("folder", ["python", "tests", "tools", "benchmarks", "examples"])
def test_no_python_is_too_large(folder):
    found = [what for file in sorted((ROOT / folder).rglob("*.py")) for what in too_large(file)]
    assert not found, "\n".join(found)


# ------------------------------------------------------------------------------- the test itself sees what it looks for


def test_an_arrow_up_and_a_circle_are_seen(tmp_path):
    package = tmp_path / "package"
    (package / "low").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "low" / "__init__.py").write_text("")
    (package / "low" / "a.py").write_text("def f():\n    from package import high\n")
    (package / "high.py").write_text("from package.low.a import f\n")
    graph = python_graph(package)
    assert arrows_up(graph, [["."], ["low"], ["high"]]) == ["low/a.py:2 uses high.py, and high is not below low"]
    assert sorted(circles(graph)) == [
        "high.py:1 uses low/a.py, which leads back to it",
        "low/a.py:2 uses high.py, which leads back to it",
    ]


def test_an_include_is_seen(tmp_path):
    for folder in ("src/base", "src/api"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/api/api.hpp").write_text("#pragma once\n")
    (tmp_path / "src/base/base.cpp").write_text('#include <vector>\n#include "api/api.hpp"\n')
    found = arrows_up(cpp_graph(tmp_path, ["src"]), [["src/base"], ["src/api"]])
    assert found == ["src/base/base.cpp:2 uses src/api/api.hpp, and src/api is not below src/base"]


def test_what_is_too_large_is_seen(tmp_path):
    file = tmp_path / "large.py"
    methods = "".join(f"    def f{i}(self): pass\n" for i in range(MAX_METHODS + 1))
    file.write_text("class Large:\n" + methods + "def long():\n" + "    pass\n" * MAX_FUNCTION_LINES + "\n" * MAX_FILE_LINES)
    assert [what.partition(" ")[2] for what in too_large(file)] == ["488 lines", "Large has 26 methods", "long has 61 lines"]
