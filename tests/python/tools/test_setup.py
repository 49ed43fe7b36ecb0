"""tools/setup builds everything that changed again, and nothing else; a build shows its progress and ends with an interrupt."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.checkouts import TOOLS, alive, copy_tools, program, sourced, wait_until_it_sleeps, write


@pytest.fixture
def no_mpi(tmp_path: Path) -> dict[str, str]:
    """An environment in which CMake, pkg-config and found.py find an MPI that does not work."""
    for name in ("mpicc", "mpicc.openmpi", "mpicc.mpich"):
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
    cache = write(tree / "build/wheel/CMakeCache.txt", "TNT_MPICC:STRING=")
    assert packages_built(tree, "demo", no_mpi) == [] and cache.exists()
    assert len(packages_built(tree, "demo")) == 1 and not cache.exists()
    assert packages_built(tree, "demo") == []


def test_a_package_for_the_tests_does_for_the_demo_and_not_the_other_way_round(tree: Path) -> None:
    stub = "#!/usr/bin/env bash\necho installed\n"  # dpkg-query: as if all was there
    env = {**os.environ, "PATH": f"{write(tree / 'bin/dpkg-query', stub, 0o755).parent}:{os.environ['PATH']}"}
    assert len(packages_built(tree, "demo", env)) == 1
    if any(shutil.which(tool) is None for tool in ("clang-format", "clang-tidy", "clang++")):
        pytest.skip("tools/setup test would install packages")
    done = subprocess.run(["bash", "-c", ". tools/building.sh; found"], cwd=tree, capture_output=True, text=True, env=env)
    assert "fmt: " in done.stdout and "mpicc: " in done.stdout
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
    assert "broken/bin" not in (folder / "CMakeCache.txt").read_text()
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
