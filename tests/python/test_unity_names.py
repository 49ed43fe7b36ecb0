"""Files that are compiled as one, with sanitizers and for clang-tidy, have no name in common (CMake's unity build).

Which files meet in one compilation changes with every file that is added, so a name that two files share breaks it later.
Looked at are types, constants and functions (with their parameters, as they may be overloaded) in anonymous namespaces.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LISTS = (ROOT / "src/CMakeLists.txt", ROOT / "CMakeLists.txt")
OTHER_PROGRAMS = ("src/comm/mpi/", "src/device/cuda/", "src/comm/simulated/")
CONSTANT = re.compile(r"(?:inline |static )?constexpr [\w:<>, ]+?[ *&](\w+)(?: =|\{|\[)")
FUNCTION = re.compile(r"[\w:][\w:<>&* ,]* [&*]?(\w+\([^()]*\)) (?:noexcept )?\{")
TYPE = re.compile(r"(?:class|struct|enum class) (\w+)\b[^;]*$")


def own_names(text: str) -> Iterator[str]:
    """The types, constants and functions of the anonymous namespaces."""
    inside = False
    for line in text.splitlines():
        if line.startswith("namespace {"):
            inside = True
        elif line.startswith("}  // namespace"):
            inside = False
        elif inside and (found := CONSTANT.match(line) or TYPE.match(line) or FUNCTION.match(line)):
            yield found[1]


def compiled_apart() -> set[str]:
    """Files that the lists of CMake name as such."""
    calls = [call for file in LISTS for call in re.findall(r"tnt_compile_apart\(([^)]*)\)", file.read_text())]
    return {f"src/{word}" for call in calls for word in call.split()}


def files() -> list[str]:
    """The library's files that may be compiled with others."""
    sources = [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("kernels/cpu/*.cpp")]
    names = sorted(str(file.relative_to(ROOT)) for file in sources)
    return [name for name in names if not name.startswith(OTHER_PROGRAMS) and name not in compiled_apart()]


def test_names_are_found():
    own = "constexpr std::size_t a = 1;\nstruct B {\n};\nclass C;\nint d(int x) {\n}\n"
    text = f"namespace {{\n{own}}}  // namespace\nstruct D {{\n}};\n"
    assert list(own_names(text)) == ["a", "B", "d(int x)"]
    assert "src/comm/network/staging.cpp" in compiled_apart()
    assert len(files()) > 60


def test_no_two_files_share_a_name():
    places: dict[str, list[str]] = defaultdict(list)
    for file in files():
        for name in set(own_names((ROOT / file).read_text())):
            places[name].append(file)
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert not shared, "rename one, or give its file to tnt_compile_apart"
