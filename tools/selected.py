"""Selects the tests for the files given to tools/test. Needs Python without any packages.

selected.py sort WORD...            a line for each: "c++ FILE" or "python WORD"; a word that names no test is refused
selected.py changed                 the same for what has changed, after a line "since COMMIT"
selected.py programs BUILD FILE...  the test programs that these C++ files are compiled into
selected.py cases BUILD FILE...     the numbers that ctest has for the cases in these files, as its option -I takes them
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USAGE_ERROR = 2
SOURCES = (".cpp", ".c", ".cu")


class Refused(Exception):
    """An argument is invalid, as the text describes."""


def tests_of(folder: Path) -> Path | None:
    """The folder of tests for a folder of sources, or for its nearest parent that has one."""
    first, *rest = folder.parts
    if first in ("kernels", "benchmarks"):
        return Path("tests", first)
    if folder.parts[:2] == ("python", "extension"):
        return Path("tests/tensorflow")
    if first == "src":
        return next((Path("tests", part) for part in reversed(rest) if (ROOT / "tests" / part).is_dir()), None)
    return None


def python_tests_of(folder: Path) -> Path | None:
    """The folder of tests for a folder of the Python package: of its deepest part that has one."""
    parts = folder.parts[2:] if folder.parts[:2] == ("python", "tarantella") else ()
    folders = [Path("tests", "python", *parts[:depth]) for depth in range(len(parts), 0, -1)]
    return next((folder for folder in folders if list((ROOT / folder).rglob("test_*.py"))), None)


def is_python(path: Path) -> bool:
    return path.parts[:2] == ("tests", "python")


def sort_word(word: str) -> list[str]:
    """The meaning of one argument."""
    if word == "quick":
        raise Refused("quick stands alone: it is said without files")
    name, _, case = word.partition("::")
    path = Path(name) if not Path(name).is_absolute() else Path(name).relative_to(ROOT) if ROOT in Path(name).parents else None
    if path is None or not name or ".." in path.parts or not (ROOT / path).exists():
        raise Refused(f"there is no file or folder {name or word!r} here, and the only word is quick")
    if is_python(path):
        is_test = path.name.startswith("test_") and path.suffix == ".py"
        if not is_test and not ((ROOT / path).is_dir() and list((ROOT / path).rglob("test_*.py"))):
            raise Refused(f"{name} is no file of tests: those in tests/python are called test_*.py")
        return [f"python {path}{'::' + case if case else ''}"]
    if case:
        raise Refused(f"{word}: only a Python file is asked for one of its tests by '::'")
    if (ROOT / path).is_file() and path.parts[0] == "tests" and path.suffix in SOURCES:
        return [f"c++ {path}"]
    folder = path if (ROOT / path).is_dir() else path.parent
    python_folder = python_tests_of(folder)
    if python_folder is not None:
        return [f"python {python_folder}"]
    if folder.parts and folder.parts[0] != "tests":
        folder = tests_of(folder) or Path()
    elif not (ROOT / path).is_dir():
        folder = Path()
    inside = sorted((ROOT / folder).rglob("*")) if len(folder.parts) > 1 else []
    files = [file for file in inside if file.suffix in SOURCES]
    if not files:
        raise Refused(
            f"{name} has no tests: name a .cpp file or a folder in tests, a folder in src or python, or a file in tests/python"
        )
    return [f"c++ {file.relative_to(ROOT)}" for file in files]


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"quick: git {words[0]}: {done.stderr.strip()}")
    return done.stdout.strip()


def changed() -> list[str]:
    """The tests of the files that differ from main, or on main from its last commit, or if none do in that commit."""
    base = git("merge-base", "HEAD", "main")
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    files = [*git("diff", "--name-only", base).splitlines(), *new]
    if not files:
        base = git("rev-parse", "HEAD~1")
        files = git("diff", "--name-only", base).splitlines()
    words = [word for file in files if (ROOT / file).exists() for word in tests_for(Path(file))]
    return [f"since {base[:12]}: {len(files)} files", "python tests/python/test_layers.py", *words]


def tests_for(file: Path) -> list[str]:
    """The tests of one file, as `sort_word` writes them; it may have none. In Python those with its name, if there are any."""
    if file.suffix == ".py" and not is_python(file):
        named = [path.relative_to(ROOT) for path in (ROOT / "tests/python").rglob(f"test_{file.stem}*.py")]
        if named:
            return [f"python {path}" for path in named]
        folder = python_tests_of(file.parent) or Path("tests/python", file.parent)
        return [f"python {path.relative_to(ROOT)}" for path in sorted((ROOT / folder).glob("test_*.py"))]
    if file.parts[:3] == ("tests", "python", "ranks"):
        return tests_for(Path("python/tarantella", *file.parts[3:]))
    if file.suffix == ".md":
        return ["python tests/python/test_doc_pages.py"]
    try:
        return sort_word(str(file))
    except Refused:
        return []


def query(build: Path, names: list[str]) -> dict[str, tuple[str, list[str]]]:
    """For each file built by ninja: its rule, and the files that depend on it."""
    if not names:
        return {}
    done = subprocess.run(["ninja", "-C", str(build), "-t", "query", *names], capture_output=True, text=True)
    found: dict[str, tuple[str, list[str]]] = {}
    name, part = "", ""
    for line in done.stdout.splitlines():
        if line.startswith("    "):
            if part == "outputs:":
                found[name][1].append(line.strip())
        elif line.startswith("  "):
            part, _, rule = line.strip().partition(" ")
            if part == "input:":
                found[name] = (rule, [])
        elif line.endswith(":"):
            name, part = line[:-1], ""
            found[name] = ("", [])
    return found


def contains(compiled: Path, wanted: set[str]) -> bool:
    """Whether the compiler gets one of those with this file. In a unity build a file of CMake's includes several."""
    if compiled.parent.name != "Unity":
        return str(compiled) in wanted
    return any(line.partition('"')[2].rstrip('"') in wanted for line in compiled.read_text().splitlines())


def programs(build: Path, files: list[str]) -> list[str]:
    """Paths in the build folder of all programs that contain any of these files."""
    wanted = {str(ROOT / file) for file in files}
    commands = json.loads((build / "compile_commands.json").read_text())
    found: set[str] = set()
    seen: set[str] = set()
    known = query(build, sorted({entry["file"] for entry in commands if contains(Path(entry["file"]), wanted)}))
    while known:
        seen |= set(known)
        outputs = {output for _, made in known.values() for output in made} - seen
        known = {}
        for name, (rule, made) in query(build, sorted(outputs)).items():
            if "EXECUTABLE_LINKER" in rule:
                found.add(name)
            elif "STATIC_LIBRARY_LINKER" in rule or "COMPILER" in rule:
                known[name] = (rule, made)
    return sorted(found)


def cases_in(program: Path, files: set[str]) -> set[str]:
    """The tests of a GoogleTest program that are defined in these files."""
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder, "list.json")
        subprocess.run(
            [program, "--gtest_list_tests", f"--gtest_output=json:{listing}"], stdout=subprocess.DEVNULL, check=True, timeout=60
        )
        suites = json.loads(listing.read_text())["testsuites"]
    # the compiler cache writes paths that do not begin with the checkout's path
    return {
        f"{suite['name']}.{case['name']}"
        for suite in suites
        for case in suite["testsuite"]
        if any(f"/{case['file']}".endswith(f"/{file}") for file in files)
    }


def cases(build: Path, files: list[str]) -> list[int]:
    by_program: dict[str, set[str]] = {str(build / name): set() for name in programs(build, files)}
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True, check=True)
    tests = json.loads(listing.stdout)["tests"]
    filters = [filter_of(test.get("command", [])) for test in tests]
    for program in by_program:
        if any(case and program in test["command"] for case, test in zip(filters, tests, strict=True)):
            by_program[program] = cases_in(Path(program), set(files))
    numbers = []
    for number, (test, case) in enumerate(zip(tests, filters, strict=True), 1):
        program = next((word for word in test.get("command", []) if word in by_program), None)
        if program is not None and (case is None or case in by_program[program]):
            numbers.append(number)
    return numbers


def filter_of(command: list[str]) -> str | None:
    return next((word.partition("=")[2] for word in command if word.startswith("--gtest_filter=")), None)


def main(words: list[str]) -> int:
    task, *rest = words
    try:
        if task == "changed":
            print("\n".join(dict.fromkeys(changed())))
            return 0
        if task == "sort":
            lines = [line for word in rest for line in sort_word(word)]
            print("\n".join(dict.fromkeys(lines)))
            return 0
        build, files = Path(rest[0]).resolve(), rest[1:]
        if task == "programs":
            names = [Path(name).name for name in programs(build, files)]
            if not names:
                raise Refused(f"{files[0]} is not compiled on this machine, or is part of no test")
            print("\n".join(names))
        else:
            numbers = cases(build, files)
            if not numbers:
                raise Refused(f"there is no test in {', '.join(files)}")
            print("0,0,0," + ",".join(map(str, numbers)))
    except Refused as reason:
        print(f"tools/test: {reason}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
