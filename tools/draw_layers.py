#!/usr/bin/env python3
"""Draws docs/layers.svg: the layers of the code as eight boxes, each above all that it uses, with the rooms in each.

    tools/draw_layers.py            writes the drawing
    tools/draw_layers.py --list     prints each layer's rooms, top first

A room is a folder, or a single file beside folders. The rooms come from the code's own includes and imports. Imports inside
functions, which happen later, do not count, but for those of the extension.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "tarantella"
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
SOURCES = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh")
LIBRARY = ("src", "kernels", "include")
HEADER = "include/tarantella"
EXTENSION = "python/extension/native"  # tarantella._native

# From the top: the title, the colour, and how the names of its rooms begin.
LAYERS = [
    (
        "commands, and Horovod's names",
        "#e0f2e9",
        ("horovod/", "bench/", "scaling/", "verify/", "inspection/", "cli/", "__main__/"),
    ),
    ("Keras models, and the predecessor's names", "#dbeafe", ("keras/", "compat/", "tuning/")),
    ("launcher", "#e0f2e9", ("launcher/", "start/", "flight/")),
    ("ranks in Python, and collectives", "#e0f2e9", ()),  # what no other layer has
    ("callers of the C API", "#fef3c7", ("python/extension/", "benchmarks/")),
    ("C API, reducer, bootstrap", "#ede9fe", ("src/api/", "src/reducer/", "src/bootstrap/")),
    ("communicators", "#ede9fe", ("src/comm/",)),
    ("devices, base, kernels, common", "#fee2e2", ("src/", "kernels/", "include/")),
]

Graph = dict[str, set[str]]


def graph() -> Graph:
    """Room -> the rooms that it uses."""
    uses: Graph = defaultdict(set)
    for user, used in [*_includes(), *_imports()]:
        uses[used]
        if user != used:
            uses[user].add(used)
    return dict(uses)


def _includes() -> Iterator[tuple[str, str]]:
    roots = [ROOT / "src", ROOT, ROOT / "include", ROOT / "python" / "extension"]
    for folder in (*LIBRARY, "python/extension", "benchmarks"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in SOURCES:
                user = str(file.parent.relative_to(ROOT))
                yield user, user
                for name in INCLUDE.findall(file.read_text()):
                    found = next((at / name for at in (file.parent, *roots) if (at / name).is_file()), None)
                    if found is not None and found.resolve().is_relative_to(ROOT):
                        used = str(found.resolve().parent.relative_to(ROOT))
                        is_caller = used == HEADER and user.split("/")[0] not in LIBRARY
                        yield user, "src/api" if is_caller else used  # which has the functions that the header declares


def _imports() -> Iterator[tuple[str, str]]:
    for file in PACKAGE.rglob("*.py"):
        user = _python_room(file.relative_to(PACKAGE.parent).with_suffix("").parts)
        if user in ("tarantella", "keras"):
            continue  # names for users, which are loaded when they are used
        yield user, user
        tree = ast.parse(file.read_text())
        if any(isinstance(node, ast.ImportFrom) and _is_native(node) for node in ast.walk(tree)):
            yield user, "python/extension/native"
        for name in _modules(tree.body):
            if name not in ("tarantella", "tarantella.keras"):
                yield user, _python_room(tuple(name.split(".")))


def _is_native(node: ast.ImportFrom) -> bool:
    return node.module == "tarantella._native" or (node.module == "tarantella" and "_native" in [a.name for a in node.names])


def _modules(statements: list[ast.stmt]) -> Iterator[str]:
    """The modules of this package that are imported as soon as a file is."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name.split(".")[0] == "tarantella")
        elif isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == "tarantella":
            for alias in statement.names:
                deeper = f"{statement.module}.{alias.name}"
                yield deeper if _is_module(deeper) else str(statement.module)
        elif isinstance(statement, ast.Try):
            yield from _modules(statement.body)


def _is_module(name: str) -> bool:
    path = PACKAGE.parent.joinpath(*name.split("."))
    return name == "tarantella._native" or path.is_dir() or path.with_suffix(".py").is_file()


def _python_room(parts: tuple[str, ...]) -> str:
    if parts[1:2] == ("_native",):
        return EXTENSION
    at, depth = PACKAGE, 1
    while depth < len(parts) and (at / parts[depth]).is_dir() and depth < 3:
        at, depth = at / parts[depth], depth + 1
    inner = "/".join(parts[1:depth])
    if depth == 1 or (inner == "keras" and parts[2:] not in ((), ("__init__",))):
        return "/".join(parts[1 : depth + 1]).removesuffix("__init__") or "tarantella"  # a file beside folders
    return inner


def layer_of(room: str) -> int:
    """The place in LAYERS of the layer that has the room."""
    fits = [i for i, (_, _, begins) in enumerate(LAYERS) if f"{room}/".startswith(begins)]
    return fits[0] if fits else [begins for _, _, begins in LAYERS].index(())


def rooms() -> list[list[str]]:
    """The rooms of each layer."""
    found: list[list[str]] = [[] for _ in LAYERS]
    for room in sorted(graph()):
        found[layer_of(room)].append(room)
    return found


def svg() -> str:
    """The drawing."""
    wide, margin, line, columns = 760, 12, 15, 100
    boxes, y = [], margin
    for (title, colour, _), names in zip(LAYERS, rooms(), strict=True):
        texts = textwrap.wrap(", ".join(names), columns)
        high = 26 + line * len(texts)
        boxes.append(
            f'<rect x="{margin}" y="{y}" width="{wide - 2 * margin}" height="{high}" rx="4" fill="{colour}" stroke="#5b6470"/>'
        )
        boxes.append(f'<text x="{2 * margin}" y="{y + 17}" font-size="13" font-weight="bold">{escape(title)}</text>')
        for i, text in enumerate(texts):
            boxes.append(
                f'<text x="{2 * margin}" y="{y + 34 + line * i}" font-family="monospace" font-size="11">{escape(text)}</text>'
            )
        y += high + margin
    size = f'viewBox="0 0 {wide} {y}" font-family="sans-serif" fill="#111827"'
    note = "<!-- made by tools/draw_layers.py from the includes and imports of the code -->"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', note, f'<rect width="{wide}" height="{y}" fill="white"/>']
    return "\n".join([*lines, *boxes, "</svg>", ""])


def main(argv: list[str]) -> int:
    if argv == ["--list"]:
        for (title, _, _), names in zip(LAYERS, rooms(), strict=True):
            print(f"{title}: {', '.join(names)}")
        return 0
    if argv:
        print("usage: tools/draw_layers.py [--list]", file=sys.stderr)
        return 2
    (ROOT / "docs" / "layers.svg").write_text(svg())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
