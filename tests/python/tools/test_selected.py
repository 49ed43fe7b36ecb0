"""The words of tools/test stand for the tests of files and folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.checkouts import TOOLS, copy_tools, program, write


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["quikc"], "there is no file or folder 'quikc' here"),
        (["quick", "tests/comm/ll_buffer_test.cpp"], "quick stands alone"),
        (["tests/comm/ll_buffer_test.cpp", "docs"], "docs has no tests"),
        (["../x"], "there is no file or folder '../x'"),
        (["tests/python/ranks/checks.py"], "those in tests/python are called test_*.py"),
        (["tests/comm/ll_buffer_test.cpp::Lines"], "only a Python file"),
        ([""], "there is no file or folder ''"),
    ],
)
def test_a_word_without_tests_is_refused(words: list[str], sentence: str) -> None:
    done = subprocess.run([TOOLS / "test", *words], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1 and sentence in done.stderr, done.stderr


def test_words_stand_for_files() -> None:
    def sort(*words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, TOOLS / "selected.py", "sort", *words], capture_output=True, text=True, timeout=30
        )
        return done.stdout.splitlines()

    assert sort("tests/comm/ll_buffer_test.cpp", str(TOOLS.parent / "tests/comm/ll_buffer_test.cpp")) == [
        "c++ tests/comm/ll_buffer_test.cpp"
    ]
    assert sort("src/comm") == sort("tests/comm") == sort("src/comm/shm/ll_buffer.cpp")
    assert "c++ tests/comm/tree_test.cpp" in sort("src/comm") and "c++ tests/nccl/watchdog_test.cpp" in sort("src/comm/nccl")
    assert sort("tests/python/tools/test_selected.py::test_x[a b]") == [
        "python tests/python/tools/test_selected.py::test_x[a b]"
    ]
    assert sort("tests/python/launcher") == ["python tests/python/launcher"]
    assert sort("python/tarantella/keras/data/split.py") == ["python tests/python/keras/data"]
    assert sort("python/tarantella/keras/callback_placement") == ["python tests/python/keras"]


@pytest.mark.skipif(any(shutil.which(name) is None for name in ("ctest", "ninja")), reason="no CMake or Ninja")
def test_the_cases_of_a_file_are_found_in_every_program_that_has_it(tmp_path: Path) -> None:
    copy_tools(tmp_path, "selected.py")
    sources = [write(tmp_path / f"tests/comm/{name}.cpp", "") for name in ("one", "both", "helper")]
    build = tmp_path / "build"
    rules = "rule CXX_COMPILER__x\n  command = true\nrule CXX_EXECUTABLE_LINKER__x\n  command = true\n"
    objects = "".join(f"build {source.stem}.o: CXX_COMPILER__x {source}\n" for source in sources)
    write(
        build / "build.ninja",
        f"{rules}{objects}build first: CXX_EXECUTABLE_LINKER__x one.o both.o\nbuild second: CXX_EXECUTABLE_LINKER__x both.o\n"
        "build plain: CXX_EXECUTABLE_LINKER__x helper.o\nbuild all: phony first second plain\n",
    )
    write(build / "compile_commands.json", json.dumps([{"file": str(source)} for source in sources]))
    has = {
        "first": [("One", "a", "one"), ("Shared/0", "b", "both")],
        "second": [("Shared/0", "b", "both"), ("All/P", "c/1", "both")],
    }
    tests = f"add_test(plain {program(build / 'plain', '')})\n"
    for name, cases in has.items():
        suites = [
            {"name": suite, "testsuite": [{"name": case, "file": f"../../tests/comm/{file}.cpp"}]}
            for suite, case, file in cases
        ]
        listing = json.dumps({"testsuites": suites})
        program(
            build / name, f"for word; do [[ $word != --gtest_output=json:* ]] || echo '{listing}' >\"${{word#*json:}}\"; done"
        )
        for suite, case, _ in cases:
            tests += f'add_test("{name}.{suite}.{case}" {build}/{name} "--gtest_filter={suite}.{case}")\n'
    write(build / "CTestTestfile.cmake", tests)

    def ask(task: str, *files: str) -> str:
        command = [sys.executable, tmp_path / "tools/selected.py", task, build, *files]
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()

    assert ask("programs", "tests/comm/both.cpp").split() == ["first", "second"]
    assert ask("programs", "tests/comm/one.cpp") == "first"
    assert ask("cases", "tests/comm/one.cpp") == "0,0,0,2"
    assert ask("cases", "tests/comm/both.cpp") == "0,0,0,3,4,5"
    assert ask("cases", "tests/comm/helper.cpp") == "0,0,0,1"  # not of GoogleTest: all that the program does
    assert ask("programs", "tests/comm/gone.cpp") == ""
