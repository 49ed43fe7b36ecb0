"""The pages of the documentation: their form, their links, and that the names in them exist. Nothing is built or run."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import tarantella

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")])
SOURCES = ("src", "include", "kernels", "python", "benchmarks", "tests", "tools", "examples")
IN_PACKAGE = ("keras", "launcher", "collectives", "compat")  # named without python/tarantella
MAX_COLUMNS = 110
MAX_LINES_OF_ARCHITECTURE = 200

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@functools.cache
def prose(page: Path) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def code_spans(page: Path) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def commands(page: Path) -> Iterator[list[str]]:
    """Shell commands of fenced blocks without a language and of code spans, in words, without variables before them."""
    blocks = re.findall(r"^```\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *code_spans(page)]:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation mark of the text
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            yield words


@functools.cache
def source_text() -> str:
    files = [file for folder in SOURCES for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES and file.is_file()]
    return "\n".join(file.read_text(errors="replace") for file in [*files, ROOT / "CMakeLists.txt"])


SUFFIXES = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".py", ".txt", ".cmake", ".in")


def test_there_are_pages() -> None:
    assert len(PAGES) > 15


@every_page
def test_lines_are_short(page: Path) -> None:
    long = [n for n, line in enumerate(page.read_text().splitlines(), 1) if len(line) > MAX_COLUMNS]
    assert not long, f"lines of more than {MAX_COLUMNS} columns"


def test_the_architecture_is_a_short_page() -> None:
    assert len((ROOT / "docs/architecture.md").read_text().splitlines()) <= MAX_LINES_OF_ARCHITECTURE


# --------------------------------------------------------------------------------------------------------------- links


@functools.cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives headings."""
    headings = re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}: {sorted(anchors(file))}"


# --------------------------------------------------------------------------------------------------------------- names


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    for span in code_spans(page):
        found = re.fullmatch(rf"({'|'.join((*SOURCES, 'docs', *IN_PACKAGE))})(/[\w./*{{}},-]*[\w*/}}])(?:::\w+)?", span)
        if found is None or "NAME" in span:  # a file that a reader is to make
            continue
        folder = ROOT / "python/tarantella" if found[1] in IN_PACKAGE else ROOT
        assert list(folder.glob(found[1] + re.sub(r"\{.*?\}", "*", found[2].rstrip("/")))), span


@every_page
def test_variables_that_are_named_exist(page: Path) -> None:
    names = set(re.findall(r"\b_?TNT_[A-Z0-9_]+\b", page.read_text()))
    missing = {name for name in names if not re.search(rf"\b{name}", source_text())}
    assert not missing


@every_page
def test_functions_of_c_that_are_named_exist(page: Path) -> None:
    header = (ROOT / "include/tarantella/tarantella.h").read_text()
    names = set(re.findall(r"\btnt_[a-z_]+\b", " ".join(code_spans(page))))
    # programs, tests and arguments of tnt.Model begin alike
    missing = {name for name in names if not re.search(rf"\b{name}", header) and not re.search(rf"\b{name}\b", source_text())}
    assert not missing


@every_page
def test_names_of_the_package_exist(page: Path) -> None:
    names = set(re.findall(r"\btnt\.([A-Za-z_]+)", page.read_text()))
    assert names <= {*tarantella.__all__, "__path__"}


# --------------------------------------------------------------------------------------------------------------- flags

LAUNCHER = [*ROOT.glob("python/tarantella/launcher/**/*.py")]
SIMULATE = [*ROOT.glob("python/tarantella/scaling/*.py")]
VERIFY = [*LAUNCHER, *ROOT.glob("python/tarantella/verify/*.py")]
INSPECTION = [*LAUNCHER, *ROOT.glob("python/tarantella/inspection/*.py")]
TNT_BENCH = [ROOT / "benchmarks/flags.cpp", *ROOT.glob("python/tarantella/bench/*.py")]


def parser_of(words: list[str]) -> tuple[list[Path], list[str]] | None:
    """The files that define the flags of a command of ours, and the words among which its flags are."""
    program = words[0].removeprefix(".venv/bin/")
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    if program == "tarantella":
        commands_of = {
            "verify": VERIFY,
            "simulate": SIMULATE,
            "doctor": INSPECTION,
            "status": INSPECTION,
            "explain": INSPECTION,
        }
        return commands_of.get(own[0] if own else "", LAUNCHER), own
    if program == "tnt-bench":
        return TNT_BENCH, own
    scripts = [at for at, word in enumerate(words) if re.match(r"(benchmarks|tests|tools)/.*\.py$", word)]
    if scripts:
        return [ROOT / words[scripts[-1]], ROOT / "benchmarks/training/workloads.py"], words[scripts[-1] + 1 :]
    return None


@every_page
def test_flags_of_commands_exist(page: Path) -> None:
    for words in commands(page):
        found = parser_of(words)
        if found is None:
            continue
        files, own = found
        text = "".join(file.read_text() for file in files)
        for word in own:
            flag = word.strip("[]").partition("=")[0]
            if re.fullmatch(r"--?[a-z][a-z0-9-]*", flag) and flag != "--help":
                assert re.search(rf'["|,]{flag}["|,]', text), f"{flag} in {' '.join(words)}"


def test_a_flag_that_does_not_exist_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```\ntarantella -n 4 --resart 3 -- train.py --epochs 3\n```\n")
    with pytest.raises(AssertionError, match="--resart"):
        test_flags_of_commands_exist(page)


# ------------------------------------------------------------------------------------------------------------- drawing


@pytest.fixture(scope="module")
def draw_layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_layers", ROOT / "tools/draw_layers.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_drawing_has_the_rooms_that_exist(draw_layers: ModuleType) -> None:
    """Draw it again with tools/draw_layers.py."""
    assert (ROOT / "docs/layers.svg").read_text() == draw_layers.svg()
    assert all(draw_layers.rooms())


def test_each_layer_is_drawn_above_all_that_it_uses(draw_layers: ModuleType) -> None:
    uses = [(user, used) for user, all_used in draw_layers.graph().items() for used in all_used]
    assert len(uses) > 100
    assert [pair for pair in uses if draw_layers.layer_of(pair[0]) > draw_layers.layer_of(pair[1])] == []


# ------------------------------------------------------------------------------------------------------------ messages


@functools.cache
def messages() -> str:
    """The texts of all string literals of the sources, those of one message joined; what is filled in is left out."""
    files = [file for folder in ("src", "python/tarantella") for file in (ROOT / folder).rglob("*") if file.suffix in SUFFIXES]
    texts = "\n".join(file.read_text() for file in files)
    joined = re.sub(r'"\s*\n\s*f?"', "", texts)
    return re.sub(r"\{[^{}]*\}|%[sdr]", "…", joined.replace("{{", "").replace('\\"', '"'))


def symptoms(page: Path) -> list[str]:
    return [" ".join(found.split()) for found in re.findall(r"^\* `([^`]+)`", page.read_text(), re.MULTILINE)]


def test_the_symptoms_are_printed_by_the_code() -> None:
    found = symptoms(ROOT / "docs/troubleshooting.md")
    assert len(found) >= 30 and len(set(found)) == len(found)
    pieces = [(symptom, piece.strip()) for symptom in found for piece in symptom.split("…") if piece.strip(" :")]
    assert [(symptom, piece) for symptom, piece in pieces if piece not in messages()] == []


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if line in ("tools/demo", "tools/test")] == [
        "tools/demo",
        "tools/test",
    ]
