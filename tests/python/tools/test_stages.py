"""tools/test runs all its stages and sums them up; .ci/run runs the demo and then the tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.checkouts import TOOLS, alive, copy_tools, program, wait_until_it_sleeps, write


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    """A checkout in which tools/test meets stubs of all that it calls; each keeps what it was called with."""
    tree = tmp_path / "stages"
    copy_tools(tree, "test", "building.sh", "found.py", "selected.py")
    shutil.copytree(TOOLS / "stages", tree / "tools/stages")
    write(tree / "CMakePresets.json", "{}")
    write(tree / "tests/comm/x_test.cpp", "")
    write(tree / "tests/python/test_x.py", "")
    for folder in ("src", "kernels", "include", "benchmarks", "python/extension", "examples"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    program(tree / "tools/setup", 'echo "setup $*" >>called')
    program(tree / "tools/tidy", "echo clang-tidy: 0 files looked at")
    program(tree / "tools/docs", "echo docs: 3 pages")
    program(tree / "tools/fuzz", 'echo "fuzz $*" >>called; [[ ! -e fuzzy ]]')
    bin = tree / ".venv/bin"
    for name in ("ruff", "mypy"):
        program(bin / name, f'echo "{name} $*" >>called')
    program(bin / "clang-format", "echo version 1.0")
    program(
        bin / "cmake",
        f"""[[ "$*" != *build/stages* ]] || exec {shutil.which("cmake")} "$@"
echo "cmake $*" >>called
[[ "$*" == *"--build --preset asan"* && -e broken ]] || exit 0
echo "FAILED: x.o"
echo "x.cpp:3:1: error: it is broken"
for i in {{1..200}}; do echo "[$i/200] others"; done
exit 1""",
    )
    program(
        bin / "ctest",
        f"""[[ "$*" != *build/stages* ]] || exec {shutil.which("ctest")} "$@"
"""
        """echo "ctest $*" >>called
if [[ "$*" == *"--preset tsan"* && -e shaky && ( "$*" != *--rerun-failed* || -e broken ) ]]; then
  mkdir -p build/tsan/Testing/Temporary
  cp shaky build/tsan/Testing/Temporary/LastTestsFailed.log
  printf 'x_test.cpp:3: Failure\\nExpected: 1 second\\nThe following tests FAILED:\\n\\t7 - X.Y (Failed)\\n\\n'
  exit 8
fi
if [[ "$*" == *"--preset asan"* ]]; then
  mkdir -p build/asan/Testing/Temporary
  printf '[==========] %s tests from 5 test suites ran. (9 ms total)\\n' 40 2 >build/asan/Testing/Temporary/LastTest.log
fi
echo '100% tests passed, 0 tests failed out of 12'""",
    )
    program(
        bin / "python",
        f"""[[ "$*" == *pytest* ]] || exec {sys.executable} "$@"
echo "python $*" >>called
if [[ -e bad ]]; then
  mkdir -p .pytest_cache/v/cache
  cp bad .pytest_cache/v/cache/lastfailed
  echo 'E   assert 1 == 2'; echo 'FAILED test_x.py::test_it - assert 1 == 2'; echo '1 failed, 2 passed in 3.21s'
  exit 1
fi
echo '3 passed, 1 skipped in 3.21s'""",
    )
    return tree


def run_stages(tree: Path, *words: str) -> tuple[int, str, list[str]]:
    (tree / "called").unlink(missing_ok=True)
    done = subprocess.run([tree / "tools/test", *words], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr, (tree / "called").read_text().splitlines()


def test_all_stages_run_and_are_summed_up(stages: Path) -> None:
    code, said, called = run_stages(stages)
    assert code == 0, said
    assert said.endswith("tools/test: ok\n")
    for line in (
        "ctest --preset release -j",
        "ctest --preset asan -j 2 --no-tests=error",
        "ctest --preset tsan -j 2 --no-tests=error",
    ):
        assert any(call.startswith(line) for call in called), (line, called)
    assert "cmake --build --preset asan --target tnt_sanitized" in called
    summary = said[said.index("\nSummary") :]
    assert re.search(r"python +ok +\d+ s +3 passed, 1 skipped\n", summary), summary
    assert re.search(r"c\+\+ +ok +\d+ s +12 tests\n", summary), summary
    assert re.search(r"c\+\+-asan +ok +\d+ s +12 tests; 42 tests, by 2 processes\n", summary), summary
    assert re.search(r"clang-tidy +ok +\d+ s\n", summary), summary
    assert summary.index("c++ ") < summary.index("python ") < summary.index("clang-tidy") < summary.index("c++-asan")
    assert "fuzz --only c++ --seconds 4" in called and re.search(r"fuzz +ok ", summary), summary


def test_stages_that_run_are_named_meanwhile(stages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLS_PROGRESS_SECONDS", "1")
    program(stages / ".venv/bin/ruff", "sleep 3")
    program(stages / "tools/docs", "echo '.... [ 41%]'; sleep 3; echo docs: 3 pages")
    code, said, _ = run_stages(stages)
    assert code == 0 and said.endswith("tools/test: ok\n"), said
    assert re.search(r"^ruff: begun, \d+ s so far$", said, re.MULTILINE), said
    assert re.search(r"^docs: \[ 41%\], \d+ s so far$", said, re.MULTILINE), said


def test_a_stage_that_fails_shows_why_and_the_others_go_on(stages: Path) -> None:
    write(stages / "broken", "")
    write(stages / "bad", "")
    code, said, called = run_stages(stages)
    assert code == 1 and said.endswith("tools/test: FAILED\n")
    assert "x.cpp:3:1: error: it is broken" in said[: said.index("\nSummary")]
    assert "1 failed, 2 passed in 3.21s" in said
    assert not any(call.startswith("ctest --preset asan") for call in called)
    assert any(call.startswith("ctest --preset tsan") for call in called) and re.search(r"clang-tidy +ok", said)
    summary = said[said.index("\nSummary") :]
    assert re.search(r"python +FAILED .* 1 failed, 2 passed\n", summary) and re.search(r"c\+\+-asan +FAILED", summary)
    assert "-- python:\nE   assert 1 == 2\nFAILED test_x.py::test_it - assert 1 == 2\n" in summary, summary
    assert "-- asan-build:\nx.cpp:3:1: error: it is broken\n" in summary, summary
    assert "-- c++-asan:\nit did not run, or was ended\n" in summary, summary


def test_what_fails_once_and_passes_alone_is_named_as_unsteady(stages: Path) -> None:
    write(stages / "shaky", "7:X.Y\n")
    code, said, called = run_stages(stages)
    summary = said[said.index("\nSummary") :]
    assert code == 0 and re.search(r"c\+\+-tsan +unsteady", summary), summary
    assert "x_test.cpp:3: Failure" in summary and "\t7 - X.Y (Failed)" in summary and "UNSTEADY: 1 failed" in summary, summary
    assert sum("ctest --preset tsan" in call for call in called) == 2


@pytest.mark.parametrize("failed", ["always", "many"])
def test_what_fails_twice_or_in_numbers_is_a_failure(stages: Path, failed: str) -> None:
    write(stages / "shaky", "7:X.Y\n" * (1 if failed == "always" else 6))
    if failed == "always":
        write(stages / "broken", "")
        write(stages / "bad", '{\n  "test_x.py::test_it": true\n}')
    code, said, called = run_stages(stages)
    assert code == 1 and re.search(r"c\+\+-tsan +FAILED", said) and "unsteady" not in said, said
    assert sum("ctest --preset tsan" in call for call in called) == (2 if failed == "always" else 1)
    assert sum("python -m pytest" in call for call in called) == (2 if failed == "always" else 1)


def test_quick_is_the_lint_and_the_tests_of_what_has_changed(stages: Path) -> None:
    write(stages / ".gitignore", "called\nbuild\n")
    for words in (["init", "-b", "main"], ["add", "-A"], ["commit", "-m", "all"], ["checkout", "-b", "work"]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=stages, check=True, capture_output=True)
    write(stages / "tests/python/test_x.py", "x = 1")
    code, said, called = run_stages(stages, "quick")
    assert code == 0 and re.search(r"tests of what has changed since [0-9a-f]{12}: 1 files", said), said
    assert {"ruff check", "mypy "} < set(called) and not any("ctest" in call for call in called), called
    [tests] = [call for call in called if "pytest" in call]
    assert "tests/python/test_x.py" in tests and "not long" in tests
    write(stages / "bad", "")
    assert run_stages(stages, "quick")[0] == 1


def test_a_python_file_alone_builds_no_test_in_cplusplus(stages: Path) -> None:
    code, said, called = run_stages(stages, "tests/python/test_x.py::test_it", "tests/python/test_x.py")
    assert code == 0, said
    assert called == ["setup test", "python -m pytest tests/python/test_x.py::test_it tests/python/test_x.py -q"]
    write(stages / "bad", "")
    assert run_stages(stages, "tests/python/test_x.py")[0] == 1


def test_a_file_in_cplusplus_alone_builds_no_package(stages: Path) -> None:
    write(
        stages / "tools/selected.py",
        "import sys\n"
        "print({'sort': 'c++ tests/comm/x_test.cpp', 'programs': 'tnt_a\\ntnt_b', 'cases': '0,0,0,4'}[sys.argv[1]])",
    )
    code, said, called = run_stages(stages, "tests/comm/x_test.cpp")
    assert code == 0, said
    assert called[0] == "setup compile" and "cmake --build --preset release --target tnt_a tnt_b" in called
    assert called[-1].startswith("ctest --preset release") and called[-1].endswith("-I 0,0,0,4")


def test_an_interrupt_ends_what_runs_beside_the_stages(stages: Path) -> None:
    real = f'[[ "$*" != *build/stages* ]] || exec {shutil.which("cmake")} "$@"\n'
    program(stages / ".venv/bin/cmake", real + '[[ "$*" != *"--build --preset asan"* ]] || { echo $$ >>pids; exec sleep 97; }')
    program(stages / ".venv/bin/python", f'[[ "$*" == *pytest* ]] || exec {sys.executable} "$@"\necho $$ >>pids; exec sleep 97')
    preexec = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    options = {"start_new_session": True, "stdout": subprocess.DEVNULL, "preexec_fn": preexec}
    with subprocess.Popen([stages / "tools/test"], **options) as process:
        pids = stages / "pids"
        deadline = time.monotonic() + 60
        while not (pids.exists() and len(pids.read_text().split()) == 2) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in pids.read_text().split():
            wait_until_it_sleeps(pid)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
    deadline = time.monotonic() + 10
    while any(map(alive, pids.read_text().split())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids.read_text().split()))


def test_a_second_run_waits_for_the_first(stages: Path) -> None:
    running = stages / "running"
    program(stages / ".venv/bin/ruff", f"touch {running}; sleep 4; rm {running}")
    with subprocess.Popen([stages / "tools/test"], stdout=subprocess.DEVNULL) as first:
        while not running.exists():
            time.sleep(0.01)
        code, said, _ = run_stages(stages, "tests/python/test_x.py")
        assert code == 0 and "another one is running here: waiting for it" in said and not running.exists()
        assert first.wait(60) == 0


def test_ci_runs_the_demo_before_the_tests(tmp_path: Path) -> None:
    script = (TOOLS.parent / ".ci/run").read_text()
    write(tmp_path / ".ci/run", script, 0o755)
    program(tmp_path / "bin/slurmctld", "")
    env = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    for demo, test, code in ((0, 0, 0), (1, 0, 1), (0, 1, 1)):
        program(tmp_path / "tools/demo", f"echo demo; exit {demo}")
        program(tmp_path / "tools/test", f"echo test; exit {test}")
        done = subprocess.run([tmp_path / ".ci/run"], capture_output=True, text=True, timeout=30, env=env)
        assert (done.returncode, done.stdout.split()[:2]) == (code, ["demo", "test"])
