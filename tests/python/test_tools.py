"""The demo's verdict, and gpu-check's: a wrong result must never pass. What tools/setup builds again, tools/test runs and
tools/tidy looks at: nothing twice, and nothing not at all."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_runs", TOOLS / "demo_runs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def run(demo: ModuleType, ranks: int = 2, difference: float = 1e-6, **results: float) -> Any:
    good = {"accuracy": 0.98, "bytes": 100.0, "busy_seconds": 2.0, "exposed_seconds": 0.5}
    return demo.Run("a run", ranks, good | results, difference)


def test_good_runs_pass(demo: ModuleType) -> None:
    assert demo.check([run(demo, ranks=0, difference=0.0), run(demo)]) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"difference": 2e-4}, "weights differ"),
        ({"difference": math.nan}, "weights differ"),
        ({"accuracy": 0.94}, "accuracy is 0.9400"),
        ({"accuracy": math.nan}, "accuracy is nan"),
        ({"bytes": 0.0}, "nothing was reduced"),
    ],
)
def test_a_bad_run_is_named(demo: ModuleType, wrong: dict[str, float], sentence: str) -> None:
    (line,) = demo.check([run(demo), run(demo, **wrong)])
    assert line.startswith("a run: ") and sentence in line


@pytest.mark.parametrize(("busy", "exposed", "percent"), [(2.0, 0.5, 75.0), (2.0, 2.5, 0.0), (2.0, -0.1, 100.0)])
def test_the_hidden_share_is_a_percentage(demo: ModuleType, busy: float, exposed: float, percent: float) -> None:
    assert run(demo, busy_seconds=busy, exposed_seconds=exposed).hidden == percent


def test_weights_that_are_not_numbers_differ(demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    np.savez(tmp_path / "good.npz", np.zeros(3), np.ones(2))
    np.savez(tmp_path / "bad.npz", np.zeros(3), np.array([1.0, np.nan]))
    assert math.isnan(demo.compare(demo.Run("bad", 2), demo.Run("good", 0)))


def test_a_run_that_fails_fails_the_demo(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('no data')")
    monkeypatch.setattr(demo, "FOLDER", tmp_path)
    monkeypatch.setattr(demo, "SCRIPT", script)
    monkeypatch.setattr(demo, "BIN", Path(sys.executable).parent)
    (tmp_path / "serial.json").write_text(json.dumps({"accuracy": 1.0}))  # an earlier demo's
    assert demo.main() == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "demo: failed max_weight_diff=nan accuracy=nan hidden=nan"
    assert "no data" in err


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(TOOLS)
    return importlib.import_module("gpu_check.__main__")


def test_without_a_gpu_there_is_one_sentence(gpu_check: ModuleType, tmp_path: Path) -> None:
    try:
        gpu_check.find_gpu()
    except gpu_check.NoGpu as reason:
        done = subprocess.run(
            [TOOLS / "gpu-check", "bench"], capture_output=True, text=True, timeout=30, env={**os.environ, "OUT": str(tmp_path)}
        )
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gpu-check: there is no GPU to check: {reason}\n")
        assert not list(tmp_path.iterdir())
    else:
        pytest.skip("there is a GPU")


def test_a_part_that_does_not_exist_is_named() -> None:
    done = subprocess.run([TOOLS / "gpu-check", "bench", "benhc"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2 and "there is no part benhc: there are build, unit," in done.stderr


GOOD = {"case": "pack/resnet50/float32/all", "percent_of_copy": 91.0, "launches": 1, "host_us": 3.0}


@pytest.mark.parametrize(
    ("wrong", "failure", "code", "last"),
    [
        ({}, None, 0, "ok: failed: none; targets missed: 0 of 3; skipped: foreach"),
        ({"percent_of_copy": 84.9}, None, 1, "FAILED: failed: none; targets missed: 1 of 3; skipped: foreach"),
        ({"percent_of_copy": math.nan}, None, 1, "FAILED: failed: none; targets missed: 1 of 3; skipped: foreach"),
        ({"launches": 2, "host_us": 11.0}, None, 1, "FAILED: failed: none; targets missed: 2 of 3; skipped: foreach"),
        ({}, "unit", 1, "FAILED: failed: unit; targets missed: 0 of 3; skipped: foreach"),
        ({}, "build", 1, "FAILED: failed: build; targets missed: 0 of 0; skipped: unit, bench, foreach"),
    ],
)
def test_a_gpu_check_is_ok_if_nothing_failed_or_was_missed(
    gpu_check: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: dict[str, float],
    failure: str | None,
    code: int,
    last: str,
) -> None:
    def part(name: str) -> Any:
        def run_it(check: Any) -> str:
            if name == failure:
                raise gpu_check.Failed("it is broken")
            if name == "foreach":
                raise gpu_check.Skipped("no PyTorch")
            if name == "bench":
                check.lines += [GOOD, GOOD | wrong]
            return "well"

        return run_it

    gpu = type(gpu_check)("gpu")
    gpu.name, gpu.slug, gpu.architecture, gpu.driver, gpu.driver_cuda = "A GPU", "a-gpu", "90", "580.1", "13.0"
    monkeypatch.setattr(gpu_check, "find_gpu", lambda: gpu)
    monkeypatch.setattr(gpu_check, "PARTS", {name: part(name) for name in ("build", "unit", "bench", "foreach")})
    monkeypatch.setattr(gpu_check, "buckets_table", lambda lines: "")
    monkeypatch.setenv("OUT", str(tmp_path))
    assert gpu_check.main([]) == code
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith(f"gpu-check: {last}; "), out
    result = json.loads((tmp_path / "gpu-a-gpu.json").read_text())
    assert [part["part"] for part in result["parts"]] == ["build", "unit", "bench", "foreach"]
    assert result["machine"]["device"] == "A GPU"


def test_ranks_of_a_check_end_together(gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = importlib.import_module("gpu_check.run")
    monkeypatch.setattr(run, "LOGS", tmp_path)
    script = "import os, sys, time; r = os.environ['TNT_RANK']; print('rank', r, os.environ['TNT_SIZE'], os.environ['X'])"
    said = run.job("good", 2, [sys.executable, "-c", script], 20, lambda rank: {"X": str(rank)})
    assert said.split() == ["rank", "0", "2", "0"]
    bad = f"{script}; sys.exit('it broke') if r == '1' else time.sleep(60)"
    with pytest.raises(run.Failed, match=r"rank 1 of 2: .* ended with code 1(.|\n)*it broke"):
        run.job("bad", 2, [sys.executable, "-c", bad], 20, lambda rank: {"X": "x"})
    with pytest.raises(run.Failed, match="was not done after 1 s"):
        run.call("slow", [sys.executable, "-c", "import time; time.sleep(60)"], 1)


def test_losses_of_several_ranks_are_those_of_one(gpu_check: ModuleType) -> None:
    ranks = importlib.import_module("gpu_check.several_ranks")
    serial = ranks.losses("2 ranks, transport shm\nepoch 1 loss 1.500000\nepoch 2 loss 0.750000\nsum of absolute weights 9.1\n")
    assert serial == [1.5, 0.75]
    assert ranks.compare_losses(2, [1.500002, 0.75], serial)["largest_difference"] < 3e-6
    for wrong in ([1.5, 0.7501], [1.5, math.nan], [1.5], []):
        with pytest.raises(ranks.Failed):
            ranks.compare_losses(2, wrong, serial)


def write(path: Path, text: str, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def program(path: Path, text: str) -> Path:
    return write(path, f"#!/usr/bin/env bash\n{text}\n", 0o755)


def copy_tools(tree: Path, *names: str) -> None:
    (tree / "tools").mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(TOOLS / name, tree / "tools" / name)


def sourced(commands: str, cwd: Path = TOOLS.parent, **options: Any) -> subprocess.CompletedProcess[str]:
    """What tools/building.sh makes of some commands."""
    script = f"set -euo pipefail; . {TOOLS}/building.sh; {commands}"
    return subprocess.run(["bash", "-c", script], cwd=cwd, capture_output=True, text=True, timeout=60, **options)


@pytest.fixture
def no_mpi(tmp_path: Path) -> dict[str, str]:
    """An environment in which CMake, pkg-config and found.py find an MPI that does not work."""
    for name in ("mpicc", "mpiexec"):
        program(tmp_path / "broken" / "bin" / name, "exit 1")
    (tmp_path / "empty").mkdir()
    hidden = {"PATH": f"{tmp_path}/broken/bin:{os.environ['PATH']}", "PKG_CONFIG_LIBDIR": str(tmp_path / "empty")}
    return {**os.environ, **hidden}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with little in it; its .venv has a Python that keeps what pip was asked to do, and does nothing of it."""
    tree = tmp_path / "tree"
    copy_tools(tree, "setup", "building.sh", "found.py", "requirements.py")
    shutil.copy(TOOLS.parent / "pyproject.toml", tree)
    write(tree / "CMakeLists.txt", "")
    for folder in ("src", "include", "kernels", "benchmarks", "python"):
        write(tree / folder / "file", "old")
    stub = f"""
if [[ "$*" == *" install "* ]]; then
  echo "$*" >>asked
  [[ "$*" != *" -r "* && -e fails ]] && echo "[3/9] Building CXX object src/x.o" && echo "x.cpp:1: error: no" && exit 1
  touch .venv/bin/tarantella && chmod +x .venv/bin/tarantella
elif [[ "$*" != *"import tarantella"* ]]; then
  exec {sys.executable} "$@"
fi"""
    program(tree / ".venv" / "bin" / "python", stub)
    program(tree / ".venv" / "bin" / "pip", "")
    return tree


def packages_built(tree: Path, need: str, env: dict[str, str] | None = None) -> list[str]:
    """The package builds that tools/setup asks for."""
    asked = tree / "asked"
    asked.unlink(missing_ok=True)
    env = {**(env or os.environ), "PYTHON": sys.executable}  # what python3 is may take long to find out
    done = subprocess.run([tree / "tools/setup", need], capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in asked.read_text().splitlines() if line.endswith(" .")] if asked.exists() else []


def has_gpu() -> bool:
    return subprocess.run("nvidia-smi -L | grep ^GPU", shell=True, capture_output=True).returncode == 0


@pytest.mark.skipif(shutil.which("mpicc") is None, reason="there is no MPI to be found")
def test_the_package_is_built_again_when_mpi_appears(tree: Path, no_mpi: dict[str, str]) -> None:
    (build,) = packages_built(tree, "demo", no_mpi)
    assert "cmake.define.TNT_BUILD_BENCHMARKS=OFF" in build and ("cmake.define.TNT_CUDA=OFF" in build) != has_gpu()
    assert "define.TNT_CUDA_ARCHITECTURES=80" in build or has_gpu()
    cache = write(tree / "build/wheel/CMakeCache.txt", "MPI_C_COMPILER-NOTFOUND")
    assert packages_built(tree, "demo", no_mpi) == [] and cache.exists()
    assert len(packages_built(tree, "demo")) == 1 and not cache.exists()
    assert packages_built(tree, "demo") == []


def test_a_package_for_the_tests_does_for_the_demo_and_not_the_other_way_round(tree: Path) -> None:
    stub = "#!/usr/bin/env bash\necho installed\n"  # dpkg-query: as if all was there
    env = {**os.environ, "PATH": f"{write(tree / 'bin/dpkg-query', stub, 0o755).parent}:{os.environ['PATH']}"}
    assert len(packages_built(tree, "demo", env)) == 1
    if any(shutil.which(tool) is None for tool in ("clang-format", "clang-tidy")):
        pytest.skip("tools/setup test would install packages")
    done = subprocess.run(["bash", "-c", ". tools/building.sh; found"], cwd=tree, capture_output=True, text=True, env=env)
    assert "fmt: " in done.stdout and "MPI compiler: " in done.stdout
    metadata = "from importlib import metadata; metadata.packages_distributions()['tensorflow']"
    if subprocess.run([sys.executable, "-c", metadata], capture_output=True).returncode != 0:
        pytest.skip("there is no TensorFlow")
    (build,) = packages_built(tree, "test", env)
    assert "TNT_BUILD_BENCHMARKS=ON" in build and "TNT_CUDA=AUTO" in build
    assert packages_built(tree, "demo", env) == packages_built(tree, "test", env) == []
    write(tree / "src/file", "new")
    assert packages_built(tree, "compile", env) == []
    assert len(packages_built(tree, "test", env)) == 1


def test_a_package_that_failed_is_not_there(tree: Path) -> None:
    packages_built(tree, "demo")
    write(tree / "src/file", "new")
    write(tree / "fails", "")
    done = subprocess.run([tree / "tools/setup"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "x.cpp:1: error: no" in done.stderr and "failed: building and installing" in done.stderr
    (tree / "fails").unlink()
    assert len(packages_built(tree, "demo")) == 1


def test_setup_refuses_an_unknown_word() -> None:
    done = subprocess.run([TOOLS / "setup", "demmo"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("\n") == 1 and "'demmo'" in done.stderr


@pytest.mark.skipif(any(shutil.which(name) is None for name in ("cmake", "ninja", "mpicc")), reason="no CMake, Ninja or MPI")
def test_cmake_looks_again_for_what_was_not_there(tmp_path: Path, no_mpi: dict[str, str]) -> None:
    folder = tmp_path / "build"
    commands = f"""
        found_here=$({sys.executable} {TOOLS}/found.py)
        configure {folder} release -DTNT_BUILD_TESTS=OFF -DTNT_CUDA=OFF
        ninja -C {folder} -t targets all | grep -c tarantella_mpi || true"""
    first = sourced(commands, env=no_mpi)
    assert first.stdout.splitlines()[-1:] == ["0"], first.stdout + first.stderr
    kept = write(folder / "src/CMakeFiles/tnt_objects.dir/kept.o", "")
    second = sourced(commands)
    assert int(second.stdout.splitlines()[-1]) > 0, second.stdout + second.stderr
    assert "broken/bin" not in (folder / "CMakeCache.txt").read_text()  # mpiexec was found before, and would have stayed
    assert kept.exists()
    third = sourced(commands)
    assert third.stdout == second.stdout.splitlines()[-1] + "\n"  # nothing is configured


def test_what_is_found_is_known_at_once(no_mpi: dict[str, str]) -> None:
    command = [sys.executable, str(TOOLS / "found.py")]
    start = time.perf_counter()
    here = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert time.perf_counter() - start < 5  # it is a fifth of a second on a machine with nothing else to do
    assert f"python: {sys.version.split()[0]} " in here
    assert here == subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    hidden = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, env=no_mpi).stdout
    assert "broken/bin/mpicc: ends with code 1" in hidden
    flags = {**os.environ, "CXXFLAGS": "-O1"}
    assert "CXXFLAGS: -O1" in subprocess.run(command, capture_output=True, text=True, timeout=30, env=flags).stdout


SLOW = (
    "bash -c 'echo [36/92] Building CXX object src/a.cpp.o; echo [37/92] Building CXX object src/long.cpp.o; sleep 3.2; exit 7'"
)


def test_a_build_shows_how_far_it_is(tmp_path: Path) -> None:
    done = sourced(f"watched setup {tmp_path}/log {SLOW} || echo code $?", env={**os.environ, "TOOLS_PROGRESS_SECONDS": "2"})
    assert re.fullmatch(r"(setup:   compiling 37 of 92, \d+ s so far\n)+code 7\n", done.stdout), done.stdout
    assert done.stderr == "" and "long.cpp.o" in (tmp_path / "log").read_text()


def test_a_terminal_has_one_line_that_is_drawn_again(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = ["bash", "-c", f". {TOOLS}/building.sh; watched setup {tmp_path}/log {SLOW} || echo code $?"]
    env = {**os.environ, "TERM": "dumb"}
    with subprocess.Popen(command, cwd=TOOLS.parent, stdout=theirs, env=env):
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 4096):
                said += part
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    text = said.decode()
    assert len(re.findall(r"\r\x1b\[Ksetup:   compiling 37 of 92, \d+ s so far  long\.cpp", text)) >= 2, text
    assert text.endswith("\r\x1b[Kcode 7\r\n") and text.count("\n") == 1


def alive(pid: str) -> bool:
    """Whether a process runs; one that has ended stays in /proc until somebody asks how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_it_sleeps(pid: str) -> None:
    """Until a shell has become `sleep`: bash loses a signal that comes just before it does."""
    while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
        time.sleep(0.01)


def test_an_interrupt_ends_a_build_at_once(tmp_path: Path) -> None:
    script = f". {TOOLS}/building.sh; watched setup {tmp_path}/log bash -c 'echo $$; exec sleep 97'; echo went on"
    # a shell that was started with & ignores interrupts, and so would all that it starts
    options = {"start_new_session": True, "stdout": subprocess.PIPE, "text": True}
    preexec = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    with subprocess.Popen(["bash", "-c", script], cwd=TOOLS.parent, preexec_fn=preexec, **options) as process:
        log = tmp_path / "log"
        while not (log.exists() and log.read_text().strip()):
            time.sleep(0.05)
        wait_until_it_sleeps(log.read_text().strip())
        os.killpg(process.pid, signal.SIGINT)
        assert "went on" not in process.communicate(timeout=10)[0]
    assert not alive(log.read_text().strip())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["quikc"], "there is no file or folder 'quikc' here"),
        (["quick", "tests/comm/lines_test.cpp"], "quick stands alone"),
        (["tests/comm/lines_test.cpp", "docs"], "docs has no tests"),
        (["../x"], "there is no file or folder '../x'"),
        (["tests/python/ranks/checks.py"], "those in tests/python are called test_*.py"),
        (["tests/comm/lines_test.cpp::Lines"], "only a Python file"),
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

    assert sort("tests/comm/lines_test.cpp", str(TOOLS.parent / "tests/comm/lines_test.cpp")) == [
        "c++ tests/comm/lines_test.cpp"
    ]
    assert sort("src/comm") == sort("tests/comm") == sort("src/comm/shm/lines.cpp")
    assert "c++ tests/comm/tree_test.cpp" in sort("src/comm") and "c++ tests/nccl/watchdog_test.cpp" in sort("src/comm/nccl")
    assert sort("tests/python/test_tools.py::test_x[a b]") == ["python tests/python/test_tools.py::test_x[a b]"]
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


@pytest.fixture
def stages(tmp_path: Path) -> Path:
    """A checkout in which tools/test meets stubs of all that it calls; each keeps what it was called with."""
    tree = tmp_path / "stages"
    copy_tools(tree, "test", "building.sh", "found.py", "selected.py")
    write(tree / "CMakePresets.json", "{}")
    write(tree / "tests/comm/x_test.cpp", "")
    write(tree / "tests/python/test_x.py", "")
    for folder in ("src", "kernels", "include", "benchmarks", "python/extension", "examples"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    program(tree / "tools/setup", 'echo "setup $*" >>called')
    program(tree / "tools/tidy", "echo clang-tidy: 0 files looked at")
    bin = tree / ".venv/bin"
    for name in ("ruff", "mypy"):
        program(bin / name, f'echo "{name} $*" >>called')
    program(bin / "clang-format", "echo version 1.0")
    program(
        bin / "cmake",
        """echo "cmake $*" >>called
[[ "$*" == *"--build --preset asan"* && -e broken ]] || exit 0
echo "FAILED: x.o"
echo "x.cpp:3:1: error: it is broken"
for i in {1..200}; do echo "[$i/200] others"; done
exit 1""",
    )
    program(bin / "ctest", 'echo "ctest $*" >>called; echo "100% tests passed, 0 tests failed out of 12"')
    program(
        bin / "python",
        f"""[[ "$*" == *pytest* ]] || exec {sys.executable} "$@"
echo "python $*" >>called
[[ ! -e bad ]] || {{ echo '1 failed, 2 passed in 3.21s'; exit 1; }}
echo '3 passed, 1 skipped in 3.21s'""",
    )
    program(bin / "mpicc.mpich", "exit 1")
    program(bin / "mpiexec.mpich", "exit 1")
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
        "ctest --preset asan -j 4 --no-tests=error",
        "ctest --preset tsan -j 4 --no-tests=error",
    ):
        assert any(call.startswith(line) for call in called), (line, called)
    assert "cmake --build --preset asan --target tnt_sanitized" in called
    summary = said[said.index("\nSummary") :]
    assert re.search(r"python +ok +\d+ s +- +3 passed, 1 skipped\n", summary), summary
    assert re.search(r"c\+\+ +ok +\d+ s +\d+ s, \d+ % +12 tests\n", summary) or re.search(r"c\+\+ +ok .* 12 tests\n", summary)
    assert "3 passed, 1 skipped in 3.21s\n" in summary and "100% tests passed, 0 tests failed out of 12\n" in summary
    assert summary.index("c++ ") < summary.index("python ") < summary.index("c++-asan") < summary.index("clang-tidy")


def test_a_stage_that_fails_shows_why_and_the_others_go_on(stages: Path) -> None:
    write(stages / "broken", "")
    write(stages / "bad", "")
    code, said, called = run_stages(stages)
    assert code == 1 and said.endswith("tools/test: FAILED\n")
    assert "x.cpp:3:1: error: it is broken" in said[: said.index("== c++-asan: FAILED")]
    assert "1 failed, 2 passed in 3.21s" in said
    assert not any(call.startswith("ctest --preset asan") for call in called)
    assert any(call.startswith("ctest --preset tsan") for call in called) and "== clang-tidy: ok" in said
    summary = said[said.index("\nSummary") :]
    assert re.search(r"python +FAILED .* 1 failed, 2 passed\n", summary) and re.search(r"c\+\+-asan +FAILED", summary)


def test_quick_leaves_sanitizers_and_tidy_out(stages: Path) -> None:
    code, said, called = run_stages(stages, "quick")
    assert code == 0 and "clang-tidy" not in said and not any("asan" in call for call in called)


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
    program(stages / ".venv/bin/cmake", '[[ "$*" != *"--build --preset asan"* ]] || { echo $$ >>pids; exec sleep 97; }')
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
    with subprocess.Popen([stages / "tools/test", "quick"], stdout=subprocess.DEVNULL) as first:
        while not running.exists():
            time.sleep(0.01)
        code, said, _ = run_stages(stages, "tests/python/test_x.py")
        assert code == 0 and "another one is running here: waiting for it" in said and not running.exists()
        assert first.wait(60) == 0


@pytest.fixture
def tidied(tmp_path: Path) -> Path:
    tree = tmp_path / "tidied"
    copy_tools(tree, "tidy", "found.py")
    write(tree / ".clang-tidy", "Checks: all")
    write(tree / "src/base/a.hpp", "int a;\n")
    write(tree / "src/base/b.hpp", '#include "base/a.hpp"\n')
    write(tree / "src/one.cpp", '#include "base/b.hpp"\n')
    write(tree / "src/two.cpp", "#include <vector>\n")
    commands(tree)
    program(
        tree.parent / "bin/clang-tidy",
        """[[ $1 != --version ]] || { echo "LLVM version 14"; exit; }
file=${!#}
echo "${file##*/}" >>"$LOOKED_AT"
! grep -r BAD "$file" || { echo "$file:1: error: bad"; exit 1; }""",
    )
    return tree


def commands(tree: Path, flag: str = "-O2") -> None:
    entries = [{"file": f"{tree}/src/{name}.cpp", "command": f"c++ {flag} -I{tree}/src {name}"} for name in ("one", "two")]
    write(tree / "build/release/compile_commands.json", json.dumps(entries))


def looked_at(tree: Path, *words: str, code: int = 0) -> list[str]:
    record = tree.parent / "looked_at"
    record.write_text("")
    path = f"{tree.parent}/bin:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tree.parent / "cache"), "LOOKED_AT": str(record)}
    done = subprocess.run([tree / "tools/tidy", *words], capture_output=True, text=True, timeout=60, env=env)
    files = sorted(record.read_text().split())
    assert done.returncode == code, done.stdout + done.stderr
    if code != 2:
        assert f"clang-tidy: {len(files)} files looked at, {2 - len(files)} known to be clean\n" in done.stdout
    return files


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler")
def test_tidy_looks_at_what_changed(tidied: Path) -> None:
    assert looked_at(tidied) == ["one.cpp", "two.cpp"]
    assert looked_at(tidied) == []
    assert looked_at(tidied, "--all") == ["one.cpp", "two.cpp"]
    write(tidied / "src/base/a.hpp", "int a, b;\n")  # two includes away
    assert looked_at(tidied) == ["one.cpp"]
    assert looked_at(tidied) == []
    write(tidied / "src/two.cpp", "BAD\n")
    assert looked_at(tidied, code=1) == looked_at(tidied, code=1) == ["two.cpp"]
    write(tidied / "src/two.cpp", "#include <vector>\n")
    assert looked_at(tidied) == []
    commands(tidied, "-O3")
    assert looked_at(tidied) == ["one.cpp", "two.cpp"]
    write(tidied / ".clang-tidy", "Checks: none")
    assert looked_at(tidied) == ["one.cpp", "two.cpp"]
    assert looked_at(tidied, "--al", code=2) == []
    clone = tidied.parent / "clone"
    shutil.copytree(tidied, clone)
    commands(clone, "-O3")
    assert looked_at(clone) == []


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
