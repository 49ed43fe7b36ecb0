"""examples/cpu_trainer, built against what is installed as a user builds it: the same losses on any number of ranks, also when
ranks are lost and newcomers come, and one error on all of them when one fails."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.c_programs import BUILDERS, RELEASE, ROOT, build_with_cmake, install_release, run, wheel_library, wheel_prefix
from support.launch import LAUNCHER, SLACK, Result, run_ranks
from support.mpirun import mpirun, needs_mpirun

TNT_BENCH = RELEASE / "benchmarks" / "tnt-bench"
BUCKETS = {"TNT_FUSION_THRESHOLD": "20", "TNT_TIMEOUT": "60"}  # three of them


@pytest.fixture(scope="module", params=["installed", "installed, then moved", "wheel"])
def prefix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "wheel":
        return wheel_prefix()
    folder = tmp_path_factory.mktemp("prefix")
    installed = install_release(folder / "first")
    return installed if request.param == "installed" else Path(shutil.move(installed, folder / "second place"))


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_with_cmake(wheel_prefix(), "cpu_trainer", tmp_path_factory.mktemp("trainer"))


def numbers(stdout: str) -> list[float]:
    return [float(line.split()[-1]) for line in stdout.splitlines()]


def assert_same(result: Result, serial: list[float]) -> None:
    got = numbers(result.good().stdout)
    assert got[:-1] == pytest.approx(serial[:-1], abs=2e-6), result.said
    assert got[-1] == pytest.approx(serial[-1], abs=2e-3), result.said


@pytest.mark.parametrize("way", BUILDERS)
def test_it_builds_against_what_is_installed(prefix: Path, way: str, tmp_path: Path) -> None:
    trainer = BUILDERS[way](prefix, "cpu_trainer", tmp_path / "build")
    linked = run("ldd", trainer).stdout
    assert str(prefix.resolve()) in linked, linked
    result = run_ranks(2, trainer, "--epochs", 1, env=BUCKETS).good()
    assert len(numbers(result.stdout)) == 2, result.said
    assert "2 ranks, transport shm" in result.stderr


def test_the_benchmark_is_installed_with_its_peers(prefix: Path) -> None:
    against = ["--against", "mpi"] if list(prefix.rglob("libtnt_bench_mpi_*.so")) else []
    done = run(prefix / "bin" / "tnt-bench", "all_reduce", "--ranks", 2, "-b", 64, "-e", 64, *against)
    assert bool(against) == ("Ratio to mpi" in done.stdout), done.stdout


@pytest.mark.skipif(not TNT_BENCH.exists(), reason="no release build of tnt-bench")
def test_a_plot_without_the_python_package_is_one_sentence(tmp_path: Path) -> None:
    """The installation's bin with a Python that has no such package; the package in the working directory is not taken."""
    (tmp_path / "tarantella" / "bench").mkdir(parents=True)
    (tmp_path / "tarantella" / "bench" / "__main__.py").write_text("raise SystemExit('code of the working directory')")
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without installed packages
    (tmp_path / "python3").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": ""}
    done = subprocess.run([TNT_BENCH, "plot", "a.jsonl"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert re.fullmatch(r"tnt-bench plot: needs the Python package: install tarantella for \S+, or .*\n", done.stderr), done


def test_the_package_has_a_version(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(p C)\nfind_package(tarantella 0.1 REQUIRED)\n"
        'find_package(tarantella 0.2 QUIET)\nif(tarantella_FOUND)\nmessage(FATAL_ERROR "0.1 taken for 0.2")\nendif()\n'
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={wheel_prefix()}")


@pytest.mark.parametrize("options", [("--epochs", 4, "--batch", 100), ("--epochs", 1, "--batch", 3, "--seed", 7)])
def test_losses_are_those_of_one_rank(trainer: Path, options: tuple[object, ...]) -> None:
    """The last batch is short, and with a batch of 3 one of four ranks has no sample in any step."""
    serial = numbers(run(trainer, *options).stdout)
    assert serial[0] > 1.01 * serial[-2] or len(serial) == 2, "it does not learn"
    for ranks in (1, 2, 4):
        assert_same(run_ranks(ranks, trainer, *options, env=BUCKETS), serial)


def programs_in_documentation(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "c-api.md").read_text(), re.DOTALL | re.MULTILINE)


def compiled(program: str, source: Path, compiler: str, standard: str) -> Path:
    """The program of this text, beside its source."""
    source.write_text(program)
    library, built = wheel_library(), source.with_suffix("")
    words = (standard, "-Wall", "-Wextra", "-Werror", f"-I{wheel_prefix() / 'include'}", f"-Wl,-rpath,{library.parent}")
    run(compiler, *words, source, library, "-o", built)
    return built


def test_the_cpp_program_in_the_documentation(tmp_path: Path) -> None:
    (program,) = programs_in_documentation("cpp")
    sums = compiled(program, tmp_path / "sums.cpp", "g++", "-std=c++17")
    assert run(sums).stdout == "1 0\n"
    assert run_ranks(3, sums, env=BUCKETS).good().stdout == "6 4\n"


@needs_mpirun
def test_under_mpirun(trainer: Path) -> None:
    serial = numbers(run(trainer, "--epochs", 1).stdout)
    for transport in ("shm", "mpi"):
        result = mpirun(2, trainer, "--epochs", 1, env={**BUCKETS, "TNT_TRANSPORT": transport})
        assert result.code == 0, result.said
        assert f"transport {transport}" in result.stderr
        assert numbers(result.stdout) == pytest.approx(serial, rel=1e-6), result.said


@needs_mpirun
@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_ranks_of_mpirun_take_a_newcomer(trainer: Path, tmp_path: Path, transport: str) -> None:
    words = ("--epochs", 3, "--grow-to", 3, "--id", tmp_path / "id")
    log = tmp_path / "newcomer.log"
    script = wrapped(tmp_path, f'until [ -e {tmp_path}/id ]; do sleep 0.1; done; exec {trainer} "$@"')
    newcomer = started(script, *words, "--newcomer", 2, log=log)
    try:
        result = mpirun(2, trainer, *words, "--grow-at", 2, env={"TNT_TIMEOUT": "60", "TNT_TRANSPORT": transport})
        assert result.code == 0, result.said
        assert newcomer.wait(timeout=30 * SLACK) == 0, log.read_text()
    finally:
        newcomer.kill()
    serial = numbers(run(trainer, "--epochs", 3).stdout)
    assert numbers(result.stdout) == pytest.approx(serial, rel=1e-5), result.said
    assert f"transport {transport}" in result.stderr and "3 ranks from now on" in result.stderr


def wrapped(folder: Path, line: str) -> Path:
    """A program for ranks that does something before it becomes the trainer."""
    script = folder / "rank.sh"
    script.write_text(f"#!/bin/sh\n{line}\n")
    script.chmod(0o755)
    return script


def test_a_rank_is_killed(trainer: Path, tmp_path: Path) -> None:
    joined = "grep -qs /memfd: /proc/$$/maps"  # the memory that ranks share
    kill = f"(until {joined}; do sleep 0.1; done; sleep 0.5; kill -KILL $$)"
    script = wrapped(tmp_path, f'[ "$TNT_RANK" != 1 ] || {kill} & exec {trainer} --epochs 1000000')
    result = run_ranks(3, script, env=BUCKETS, launcher_options=["--output-on-all-devices"])
    assert result.code == 137, result.said
    assert not result.left_behind, result.said
    for rank in (0, 2):
        (line,) = (line for line in result.stderr.splitlines() if f"rank {rank}: tnt_" in line)
        assert "rank 1 " in line.partition("tnt_")[2], result.said


def started(*words: object, log: Path) -> subprocess.Popen[bytes]:
    """A process in a session of its own, which says everything in the file."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
    with log.open("wb") as file:
        return subprocess.Popen(
            [str(word) for word in words],
            env={**environment, "TNT_TIMEOUT": "60"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def wait_for_text(text: str, log: Path) -> None:
    deadline = time.monotonic() + 30 * SLACK
    while not re.search(text, log.read_text(), re.MULTILINE):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_is_lost_and_newcomers_come(trainer: Path, tmp_path: Path, lost: int) -> None:
    """Each batch counts once, whoever trains on it: the weights are those of one rank."""
    serial = numbers(run(trainer, "--epochs", 4).stdout)
    script = wrapped(tmp_path, f'echo $$ > {tmp_path}/pid-$TNT_RANK; exec {trainer} "$@"')
    words = ("--epochs", 4, "--min-ranks", 2, "--grow-to", 4, "--id", tmp_path / "id")
    log = tmp_path / "job.log"
    launcher = (*LAUNCHER, "-n", 3, "--keep-going", "--output-on-all-devices", "--")
    processes = [started(*launcher, script, *words, "--grow-at", 3, log=log)]
    try:
        wait_for_text("epoch 1 loss", log)
        os.kill(int((tmp_path / f"pid-{lost}").read_text()), signal.SIGKILL)
        wait_for_text("2 ranks go on", log)
        for rank in (2, 3):
            processes.append(started(trainer, *words, "--newcomer", rank, log=tmp_path / f"newcomer-{rank}.log"))
        codes = [process.wait(timeout=30 * SLACK) for process in processes]
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    said = "\n".join(file.read_text() for file in sorted(tmp_path.glob("*.log")))
    assert codes == [0, 0, 0], said
    assert "4 ranks from now on" in said
    (weights,) = re.findall(r"sum of absolute weights (\S+)", said)
    assert float(weights) == pytest.approx(serial[-1], abs=2e-3), said


def test_too_few_ranks_are_left(trainer: Path, tmp_path: Path) -> None:
    joined = "grep -qs /memfd: /proc/$$/maps"
    kill = f"(until {joined}; do sleep 0.1; done; sleep 0.5; kill -KILL $$)"
    script = wrapped(tmp_path, f'[ "$TNT_RANK" != 1 ] || {kill} & exec {trainer} --epochs 1000000 --min-ranks 2')
    result = run_ranks(2, script, env=BUCKETS, launcher_options=["--keep-going"])
    assert result.code not in (0, -1) and not result.left_behind, result.said
    assert "rank 0: --min-ranks: too few ranks are left" in result.stderr, result.said


def test_a_newcomer_that_does_not_come_is_named(trainer: Path, tmp_path: Path) -> None:
    words = ("--epochs", 2, "--grow-to", 3, "--grow-at", 2, "--id", tmp_path / "id")
    result = run_ranks(2, trainer, *words, env={"TNT_TIMEOUT": "1"})
    assert result.code == 1, result.said
    assert re.search(r"^rank 0: tnt_comm_grow.*: rank 2 did not join within 1 s$", result.stderr, re.MULTILINE), result.said
    assert (tmp_path / "id").stat().st_mode & 0o077 == 0, "others can read the secret"


def test_a_rank_with_other_options(trainer: Path, tmp_path: Path) -> None:
    script = wrapped(tmp_path, f"exec {trainer} --batch $((64 + TNT_RANK))")
    result = run_ranks(2, script, env=BUCKETS, launcher_options=["--output-on-all-devices"])
    assert result.code == 1, result.said
    for rank in (0, 1):
        (line,) = (line for line in result.stderr.splitlines() if f"rank {rank}: tnt_reducer_create" in line)
        assert "--batch 64" in line and "--batch 65" in line, result.said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--batch", "0"], "--batch must be a whole number from 1 to 1000000, not '0'"),
        (["--epochs", "3x"], "--epochs must be a whole number from 1 to 1000000, not '3x'"),
        (["--seed"], "--seed must be a whole number from 0 to 1000000000, not ''"),
        (["--learn"], "unknown option '--learn'"),
        (["--min-ranks", "0"], "--min-ranks must be a whole number from 1 to 1000000, not '0'"),
        (["--grow-to", "3"], "--grow-to N --id FILE belong together, with --grow-at or --newcomer"),
    ],
)
def test_nonsense_is_refused(trainer: Path, words: list[str], sentence: str) -> None:
    result = run_ranks(1, trainer, *words)
    assert result.code == 2, result.said
    assert result.stderr.splitlines()[1] == sentence
    assert not result.stdout
