"""The launcher of an installation for C: one file that Python alone runs, as `tarantella` and as `tnt-run`."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.c_programs import install_release, run
from support.launch import SLACK
from support.mpirun import MPI_ENVIRONMENT, why_no
from survival import processes_with

PYTHON = [getattr(sys, "_base_executable", sys.executable), "-I"]
"""An interpreter that has no package of ours: that of the system, without the environment of these tests."""
MARK = "TARANTELLA_RUN_TEST"
ON_CORES = re.compile(r"tarantella: \d+ ranks? on \d+ cores?: .*\n")
"""What the launcher says first."""

SUM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <signal.h>
#include <tarantella/tarantella.h>
static void check(tnt_status_t status) {
  if (status == TNT_SUCCESS) return;
  fprintf(stderr, "%s\n", tnt_last_error());
  exit(1);
}
int main(int argc, char** argv) {
  const char* given = getenv("TNT_RANK"); /* not by mpirun */
  const int faulty = argc > 2 ? atoi(argv[2]) : 1;
  int rank = given ? atoi(given) : -1;
  float one = 1, sum = 0;
  tnt_comm_t world;
  if (argc > 1 && argv[1][0] == 'b' && rank == faulty) return 0; /* before it joins */
  check(tnt_init(NULL));
  check(tnt_comm_world(&world));
  check(tnt_comm_rank(world, &rank));
  if (argc > 1 && argv[1][0] == 'k' && rank == faulty) raise(SIGKILL);
  check(tnt_all_reduce(world, &one, &sum, 1, TNT_FLOAT32, TNT_SUM, NULL, NULL));
  if (rank == 0) printf("sum %g\n", sum);
  check(tnt_finalize());
  return 0;
}
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    prefix = install_release(tmp_path_factory.mktemp("prefix"))
    Started.program = prefix / "bin" / "tnt-run"
    return prefix


@pytest.fixture(scope="module")
def summing(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("sum") / "sum.c"
    source.write_text(SUM)
    built, library = source.with_suffix(""), prefix / "lib"
    found = (f"-I{prefix / 'include'}", f"-L{library}", "-ltarantella", f"-Wl,-rpath,{library}")
    run("cc", "-std=gnu99", source, "-o", built, *found)
    return built


class Started:
    """A tnt-run, and the processes of its job."""

    program = Path()

    def __init__(self, *words: object, environment: Mapping[str, str] | None = None, **options: object) -> None:
        self._mark = uuid.uuid4().hex
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        given = {**inherited, **(environment or {}), MARK: self._mark, "TNT_TIMEOUT": "60"}
        self.process = subprocess.Popen([*PYTHON, self.program, *map(str, words)], env=given, text=True, **streams)  # type: ignore[call-overload]

    def end(self) -> tuple[int, str, str]:
        """Its exit code and what it has said, but its first line. Nothing may be left."""
        out, err = self.process.communicate(timeout=30 * SLACK)
        deadline = time.monotonic() + 5 * SLACK
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, err
        return self.process.returncode, out, ON_CORES.sub("", err, count=1)

    def processes(self) -> list[int]:
        return processes_with(MARK, self._mark)


@pytest.fixture(autouse=True)
def _installed(prefix: Path) -> None:
    """All tests here run the installed file."""


def test_each_line_has_its_rank() -> None:
    code, out, err = Started("-n", 3, "--", "sh", "-c", "echo a; echo $TNT_LOCAL_RANK of $TNT_SIZE; printf b >&2").end()
    assert code == 0
    assert sorted(out.splitlines()) == sorted(f"[rank {r}] {text}" for r in range(3) for text in ("a", f"{r} of 3"))
    assert sorted(err.splitlines()) == [f"[rank {rank}] b" for rank in range(3)]
    assert Started("-n", 2, "--no-prefix", "echo", "-n", "a").end() == (0, "a\na\n", "")
    assert Started("-np", 1, "echo", "-np", "2").end() == (0, "[rank 0] -np 2\n", "")  # the second is the program's


def test_rank_0_reads_the_input(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("text\n")
    with (tmp_path / "input").open() as given:
        code, out, _ = Started("-n", 2, "--", "cat", stdin=given).end()
    assert (code, out) == (0, "[rank 0] text\n")


def test_ranks_find_each_other(prefix: Path, summing: Path) -> None:
    assert Started("-n", 3, "--", summing).end() == (0, "[rank 0] sum 3\n", "")
    done = run(*PYTHON, prefix / "bin" / "tarantella", "-n", 3, "--output-on-all-devices", "--", summing)
    assert done.stdout == "[rank 0] sum 3\n"


def test_the_file_says_what_it_is(prefix: Path) -> None:
    program = prefix / "bin" / "tarantella"
    assert program.read_bytes().startswith(b"#!/usr/bin/env -S python3 -I\n") and os.access(program, os.X_OK)
    assert re.fullmatch(r"tarantella \d+\.\d+\.\d+\n", run(*PYTHON, program, "--version").stdout)
    assert run(*PYTHON, program, "status", "--help").stdout.startswith("usage: tarantella status ")
    for words, message in {
        "doctor": "'doctor' needs Tarantella's Python package",
        "-n 2 --gradient-dtype int8 -- true": "--gradient-dtype: must be bfloat16, float16 or none, not 'int8'",
    }.items():
        refused = subprocess.run([*PYTHON, program, *words.split()], capture_output=True, text=True, timeout=30 * SLACK)
        assert (refused.returncode, refused.stdout) == (2, "") and message in refused.stderr


def test_a_file_without_its_library_says_so(prefix: Path, tmp_path: Path) -> None:
    alone = tmp_path / "tarantella"
    alone.write_bytes((prefix / "bin" / "tarantella").read_bytes())
    done = subprocess.run([*PYTHON, alone, "-n", "2", "--", "true"], capture_output=True, text=True, timeout=30 * SLACK)
    assert done.returncode == 1
    assert done.stderr.startswith(f"tarantella: {alone} belongs to an installation, and its library cannot be loaded: ")


def test_modules_of_the_current_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "selectors.py").write_text("raise SystemExit('mine')\n")
    (tmp_path / "tarantella.py").write_text("raise SystemExit('mine')\n")
    assert Started("-n", 1, "echo", "a", cwd=tmp_path).end() == (0, "[rank 0] a\n", "")


def test_the_others_go_on_if_they_are_to() -> None:
    script = "[ $TNT_RANK = 1 ] && kill -9 $$; [ $TNT_RANK = 2 ] && exit 3; sleep 2; echo still here"
    code, out, err = Started("-n", 3, "--keep-going", "--", "sh", "-c", script).end()
    assert (code, out) == (0, "[rank 0] still here\n")
    assert re.search(r"^tarantella: rank 1 \(pid \d+\) was killed by SIGKILL; the others go on$", err, re.MULTILINE), err
    assert re.search(r"^tarantella: rank 2 \(pid \d+\) exited with code 3; the others go on$", err, re.MULTILINE), err
    code, out, err = Started("-n", 2, "--keep-going", "--", "sh", "-c", "exit $((3 + TNT_RANK))").end()
    assert code in (3, 4) and len(err.splitlines()) == 2, err
    code, out, err = Started("-n", 2, "--keep-going", "--hosts", "somewhere:2", "--", "true").end()
    assert code == 2
    assert "--keep-going: is for ranks on this machine" in err


def test_the_rank_that_was_killed_is_named_and_the_others_say_why(summing: Path) -> None:
    code, _, err = Started("-n", 3, "--", summing, "killed").end()
    assert code == 128 + signal.SIGKILL
    lines = err.splitlines()
    assert lines[-1].startswith("tarantella: rank 1 (pid ") and ") was killed by SIGKILL; " in lines[-1], err
    assert all(any(line.startswith(f"[rank {rank}] rank 1 ") for line in lines) for rank in (0, 2)), err


@pytest.mark.parametrize("faulty", [0, 1])
def test_a_rank_that_ends_before_it_joins_is_told_to_the_others(summing: Path, faulty: int) -> None:
    """Long before their deadline."""
    code, _, err = Started("-n", 3, "--", summing, "before", faulty).end()
    assert code == 1 and f"rank {faulty} exited with code 0 before " in err, err


def test_hosts_are_handed_to_mpirun(prefix: Path, tmp_path: Path) -> None:
    shown = tmp_path / "mpirun"
    shown.write_text(f"#!{sys.executable}\nimport sys\nprint('Open MPI' if '--version' in sys.argv else sys.argv[1:])\n")
    shown.chmod(0o755)
    (tmp_path / "hosts").write_text("a slots=2  # first\n\nb:3\na\n")
    options = ("--hostfile", tmp_path / "hosts", "--mpirun", f"{shown} --verbose")
    code, out, err = Started("-n", 5, *options, "--", "/bin/sh", "-n").end()
    words = ast.literal_eval(out)
    assert code == 0, err
    assert words[0] == "--verbose" and ["--host", "a:3,b:2"] in [words[i : i + 2] for i in range(len(words))], out
    assert ["-x", "TNT_TIMEOUT"] in [words[i : i + 2] for i in range(len(words))]
    archive = words.index(str(prefix / "bin" / "tnt-run"))  # which runs on the hosts, too
    assert words[archive - 1] == "-I" and words[archive + 1] == "tarantella.launcher.watch.mpi_rank"
    assert words[-2:] == ["/bin/sh", "-n"]
    assert Started("--srun", "-n", 2, "--dry-run", "--", "./a b").end()[1] == (
        "srun --mpi=pmix --kill-on-bad-exit=1 -n 2 --label './a b'\n"
    )
    assert sorted(Started("--hosts", "localhost:2", "--", "echo", "a").end()[1].splitlines()) == ["[rank 0] a", "[rank 1] a"]
    asked_for_here = ast.literal_eval(Started("--mpirun", shown, "-n", 2, "true").end()[1])
    assert ["--host", "localhost:2"] in [asked_for_here[i : i + 2] for i in range(len(asked_for_here))]


@pytest.mark.skipif(bool(why_no("mpirun")), reason="no mpirun")
def test_ranks_of_mpirun_find_each_other(summing: Path) -> None:
    options = ("--mpirun", "mpirun", "--no-prefix", "-n", 2)
    code, out, err = Started(*options, "--", summing, environment=MPI_ENVIRONMENT).end()
    assert (code, out) == (0, "sum 2\n"), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no program to run"),
        ("true", "how many ranks"),
        ("-n 0 true", "-n: must be a whole number from 1 to 4096"),
        ("-np two true", "-n: must be a whole number"),
        ("-n 600 true", "-n: 600 ranks, but one machine takes 512 at most"),
        ("-n 2 --nope true", "--nope"),
        ("-n 2 --hosts a --hostfile b true", "give one of them"),
        ("-n 9 --hosts a:2 true", "-n: 9 ranks, but the hosts take 2"),
        ("--hosts a:0 true", "'a' with 0 ranks"),
        ("--hosts a,,b true", "'' is no host"),
        ("--hostfile /nonexistent true", "cannot read '/nonexistent'"),
        ("-n 2 /nonexistent", "'/nonexistent' does not exist"),
        ("-n 2 /", "'/' is a directory"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: str, message: str) -> None:
    code, out, err = Started(*words.split()).end()
    assert (code, out) == (2, "")
    assert err.startswith("tarantella: ") and message in err and err.count("\n") == 1, err
