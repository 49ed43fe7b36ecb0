"""python launcher_archive.py PACKAGE LIBRARY OUT: writes the launcher as one file that Python alone can run (a zipapp).

PACKAGE: the folder `python/tarantella`. LIBRARY: the way from the folder of the installed file to the library. The file has
the modules that `tarantella.cli` and the launcher's own programs import, and `archive/` in place of the extension.
"""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

BEGIN = ("tarantella.cli", "tarantella.launcher.watch.mpi_rank", "tarantella.launcher.watch.cleanup")
REPLACED = ("tarantella", "tarantella._native", "tarantella._place")
INTERPRETER = b"#!/usr/bin/env -S python3 -I\n"
"""Isolated: what the user's environment and the current folder hold is for ranks, not for the launcher."""
TIME = (2020, 1, 1, 0, 0, 0)
"""Of all entries, so that two builds are the same."""


def modules(package: Path) -> dict[str, Path]:
    """The files of all modules that are imported, with those of the packages around them."""
    found: dict[str, Path] = {}
    waiting = list(BEGIN)
    while waiting:
        name = waiting.pop()
        path = file_of(name, package)
        if path is None or name in found or name in REPLACED:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *imported(ast.parse(path.read_bytes()).body)]
    return found


def file_of(name: str, package: Path) -> Path | None:
    path = package.joinpath(*name.split(".")[1:])
    choices = (path.with_suffix(".py"), path / "__init__.py") if name.startswith("tarantella") else ()
    return next((choice for choice in choices if choice.is_file()), None)


def imported(statements: list[ast.stmt]) -> Iterator[str]:
    """The names that the statements import, which may be of modules; not those for type checkers alone."""
    for statement in statements:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING":
            yield from imported(statement.orelse)
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def write(package: Path, library: str, out: Path) -> None:
    own = Path(__file__).parent / "archive"
    entries = {
        "__main__.py": (own / "__main__.py").read_bytes(),
        "tarantella/__init__.py": b"",
        "tarantella/_native.py": (own / "_native.py").read_bytes(),
        "tarantella/_place.py": f"LIBRARY = {library!r}\n".encode(),
    }
    for path in modules(package).values():
        entries[f"tarantella/{path.relative_to(package)}"] = path.read_bytes()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(entries):
            archive.writestr(zipfile.ZipInfo(name, TIME), entries[name], zipfile.ZIP_DEFLATED)
    out.write_bytes(INTERPRETER + data.getvalue())
    out.chmod(0o755)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
