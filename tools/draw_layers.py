#!/usr/bin/env python3
"""Draws docs/layers.svg: the rooms of the code, each above all that it uses, as the code's own includes and imports say.

    tools/draw_layers.py            writes the drawing
    tools/draw_layers.py --list     prints the rooms by floor, top first

A room is a folder, or a single file beside folders. An arrow goes from a room to one that it uses; an arrow that follows from
others is left out. A circle of rooms is drawn as one box. Imports inside functions, which happen later, are no arrows, but
for those of the extension.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "tarantella"
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
SOURCES = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh")
LIBRARY = ("src", "kernels", "include")
HEADER = "include/tarantella"
EXTENSION = "python/extension/native"  # tarantella._native
COLOURS = {"keras": "#dbeafe", "python": "#e0f2e9", "caller": "#fef3c7", "library": "#ede9fe", "kernels": "#fee2e2"}
BOX_HEIGHT, ROW, CHARACTER, GAP, MARGIN = 26, 58, 7.0, 26, 20

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


def without_circles(uses: Graph) -> Graph:
    """Rooms that use each other become one."""
    reach = {room: _reachable(uses, room) for room in uses}
    names = {room: " + ".join(sorted({room} | {other for other in reach[room] if room in reach[other]})) for room in uses}
    merged: Graph = defaultdict(set)
    for room, used in uses.items():
        merged[names[room]] |= {names[other] for other in used} - {names[room]}
    return dict(merged)


def _reachable(uses: Graph, room: str) -> set[str]:
    found: set[str] = set()
    todo = list(uses[room])
    while todo:
        other = todo.pop()
        if other not in found:
            found.add(other)
            todo.extend(uses[other])
    return found


def reduced(uses: Graph) -> Graph:
    """Without the arrows that follow from others."""
    reach = {room: _reachable(uses, room) for room in uses}

    def follows(used: set[str], room: str) -> bool:
        return any(room in reach[other] for other in used if other != room)

    return {room: {other for other in used if not follows(used, other)} for room, used in uses.items()}


def floors(uses: Graph) -> dict[str, int]:
    """Room -> its floor: those of the library as low as can be, those of Python as high as can be."""
    lowest: dict[str, int] = {}

    def low(room: str) -> int:
        if room not in lowest:
            lowest[room] = 1 + max(map(low, uses[room]), default=-1)
        return lowest[room]

    top = max(map(low, uses))
    highest: dict[str, int] = {}

    def high(room: str) -> int:
        if room not in highest:
            highest[room] = min((high(user) for user in uses if room in uses[user]), default=top + 1) - 1
        return highest[room]

    return {room: high(room) if _is_python(room) else low(room) for room in uses}


def _is_python(room: str) -> bool:
    return room.split("/")[0] not in (*LIBRARY, "benchmarks", "python")


def together(uses: Graph) -> Graph:
    """Files beside folders that are on one floor of one package share a box."""
    floor = floors(uses)
    boxes: dict[tuple[str, int], list[str]] = defaultdict(list)
    for room in uses:
        is_file = (PACKAGE / f"{room}.py").is_file()
        boxes[(str(Path(room).parent) if is_file else room, floor[room])].append(room)
    name = {}
    for (_, _), rooms in boxes.items():
        folder = f"{Path(rooms[0]).parent}: ".removeprefix(".: ")
        text = rooms[0] if len(rooms) == 1 else folder + ", ".join(sorted(Path(room).name for room in rooms))
        name |= dict.fromkeys(rooms, text)
    merged: Graph = defaultdict(set)
    for room, used in uses.items():
        merged[name[room]] |= {name[other] for other in used}
    return dict(merged)


class Drawing:
    """Boxes in rows; a long arrow has a place of its own in each row that it crosses, so that it crosses no box."""

    def __init__(self, uses: Graph) -> None:
        self.floor = floors(uses)
        self.top = max(self.floor.values())
        self.rows: list[list[str]] = [[] for _ in range(self.top + 1)]
        self.down: dict[str, list[str]] = defaultdict(list)
        self.up: dict[str, list[str]] = defaultdict(list)
        self.ends: list[list[str]] = []
        for room in sorted(uses):
            self.rows[self.floor[room]].append(room)
        for room, used in sorted(reduced(uses).items()):
            for other in sorted(used):
                self._lead(room, other)
        self._order()
        self.x = self._places()

    def _lead(self, room: str, other: str) -> None:
        path = [room]
        for floor in range(self.floor[room] - 1, self.floor[other], -1):
            path.append(f"\0{room}>{other}@{floor}")
            self.rows[floor].append(path[-1])
        path.append(other)
        for above, below in pairwise(path):
            self.down[above].append(below)
            self.up[below].append(above)
        self.ends.append(path)

    def _order(self) -> None:
        """Puts each box near the middle of those that it is joined to, from row to row, up and down."""
        for turn in range(24):
            rows = list(range(1, len(self.rows))) if turn % 2 == 0 else list(range(len(self.rows) - 2, -1, -1))
            for at in rows:
                joined = self.down if turn % 2 == 0 else self.up
                beside = self.rows[at - 1 if turn % 2 == 0 else at + 1]
                place = {room: (i + 0.5) / len(beside) for i, room in enumerate(beside)}
                middle = {room: (i + 0.5) / len(self.rows[at]) for i, room in enumerate(self.rows[at])}
                for room in self.rows[at]:
                    if near := [place[other] for other in joined[room]]:
                        middle[room] = sum(near) / len(near)
                self.rows[at].sort(key=middle.__getitem__)

    def _places(self) -> dict[str, float]:
        """The middle of each box: as near to those it is joined to as its neighbours allow."""
        x: dict[str, float] = {}
        for row in self.rows:
            left = 0.0
            for room in row:
                x[room] = left + width(room) / 2
                left += width(room) + GAP
        for _ in range(60):
            for row in self.rows:
                wanted = [sum(x[o] for o in near) / len(near) if (near := self.down[r] + self.up[r]) else x[r] for r in row]
                for room, place in zip(row, _apart(row, wanted), strict=True):
                    x[room] = place
        least = min(x[room] - width(room) / 2 for room in x)
        return {room: place - least + MARGIN for room, place in x.items()}

    def svg(self) -> str:
        wide = max(self.x[room] + width(room) / 2 for room in self.x) + MARGIN
        high = (self.top + 1) * ROW + MARGIN
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high}" font-family="monospace" font-size="11">',
            "<!-- made by tools/draw_layers.py from the includes and imports of the code -->",
            f'<rect width="{wide:.0f}" height="{high}" fill="white"/>',
        ]
        for path in self.ends:
            points = [(self.x[room], self._y(room)) for room in path]
            lines.append(f'<path d="{_curve(points)}" fill="none" stroke="#8a8f98" stroke-width="1"/>')
        for row in self.rows:
            lines += [self._box(room) for room in row if not room.startswith("\0")]
        return "\n".join([*lines, "</svg>", ""])

    def _floor_of(self, room: str) -> int:
        return int(room.rsplit("@", 1)[1]) if room.startswith("\0") else self.floor[room]

    def _y(self, room: str) -> float:
        return (self.top - self._floor_of(room)) * ROW + MARGIN + BOX_HEIGHT / 2

    def _box(self, room: str) -> str:
        left, top = self.x[room] - width(room) / 2, self._y(room) - BOX_HEIGHT / 2
        return (
            f'<rect x="{left:.0f}" y="{top:.0f}" width="{width(room):.0f}" height="{BOX_HEIGHT}" rx="4" fill="{_colour(room)}" '
            f'stroke="#5b6470"/><text x="{self.x[room]:.0f}" y="{self._y(room) + 4:.0f}" text-anchor="middle" '
            f'fill="#111827">{escape(room)}</text>'
        )


def width(room: str) -> float:
    return 4.0 if room.startswith("\0") else len(room) * CHARACTER + 16


def _apart(row: list[str], wanted: list[float]) -> list[float]:
    """The wanted places, moved so that no two boxes touch: from the left, from the right, and between the two."""
    ahead, back = list(wanted), list(wanted)
    for i in range(1, len(row)):
        room = (width(row[i - 1]) + width(row[i])) / 2 + GAP
        ahead[i] = max(ahead[i], ahead[i - 1] + room)
        back[-i - 1] = min(back[-i - 1], back[-i] - (width(row[-i - 1]) + width(row[-i])) / 2 - GAP)
    return [(a + b) / 2 for a, b in zip(ahead, back, strict=True)]


def _curve(points: list[tuple[float, float]]) -> str:
    x, y = points[0]
    words = [f"M{x:.0f} {y + BOX_HEIGHT / 2:.0f}"]
    for i, (to, below) in enumerate(points[1:], 1):
        end = below - BOX_HEIGHT / 2
        start = y + BOX_HEIGHT / 2
        half = (start + end) / 2
        words.append(f"C{x:.0f} {half:.0f} {to:.0f} {half:.0f} {to:.0f} {end:.0f}")
        if i < len(points) - 1:
            words.append(f"V{below + BOX_HEIGHT / 2:.0f}")
        x, y = to, below
    return " ".join(words)


def _colour(room: str) -> str:
    first = room.split("/")[0]
    if first in ("src", "include"):
        return COLOURS["library"]
    if first in ("kernels", "benchmarks") or room.startswith("python/extension"):
        return COLOURS["kernels" if first == "kernels" else "caller"]
    return COLOURS["keras" if first.startswith("keras") else "python"]


def main(argv: list[str]) -> int:
    uses = together(without_circles(graph()))
    if argv == ["--list"]:
        by_floor = defaultdict(list)
        for room, floor in floors(uses).items():
            by_floor[floor].append(room)
        for floor in sorted(by_floor, reverse=True):
            print(f"{floor:2}  {'   '.join(sorted(by_floor[floor]))}")
        return 0
    if argv:
        print("usage: tools/draw_layers.py [--list]", file=sys.stderr)
        return 2
    (ROOT / "docs" / "layers.svg").write_text(Drawing(uses).svg())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
