"""tnt-run, the launcher of the C library: output by rank, named ends, nothing left, and several hosts by mpirun or srun."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from support.c_programs import RELEASE, run, wheel_library, wheel_prefix
from support.launch import SLACK
from survival import processes_with

TNT_RUN = RELEASE / "src" / "run" / "tnt-run"
MARK = "TARANTELLA_RUN_TEST"
pytestmark = pytest.mark.skipif(not TNT_RUN.exists(), reason="no release build of tnt-run")

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
  const int rank = atoi(getenv("TNT_RANK")), faulty = argc > 2 ? atoi(argv[2]) : 1;
  float one = 1, sum = 0;
  tnt_comm_t world;
  if (argc > 1 && argv[1][0] == 'b' && rank == faulty) return 0; /* before it joins */
  check(tnt_init(NULL));
  check(tnt_comm_world(&world));
  if (argc > 1 && argv[1][0] == 'k' && rank == faulty) raise(SIGKILL);
  check(tnt_all_reduce(world, &one, &sum, 1, TNT_FLOAT32, TNT_SUM, NULL, NULL));
  if (rank == 0) printf("sum %g\n", sum);
  check(tnt_finalize());
  return 0;
}
"""


@pytest.fixture(scope="module")
def summing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("sum") / "sum.c"
    source.write_text(SUM)
    library, built = wheel_library(), source.with_suffix("")
    run("cc", "-std=gnu99", source, "-o", built, f"-I{wheel_prefix() / 'include'}", library, f"-Wl,-rpath,{library.parent}")
    return built


class Started:
    """A tnt-run, and the processes of its job."""

    def __init__(self, *words: object, **options: object) -> None:
        self._mark = uuid.uuid4().hex
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        environment = {**inherited, MARK: self._mark, "TNT_TIMEOUT": "60"}
        self.process = subprocess.Popen([TNT_RUN, *map(str, words)], env=environment, text=True, **streams)  # type: ignore[call-overload]

    def end(self) -> tuple[int, str, str]:
        """Its exit code and what it has said. Nothing may be left."""
        out, err = self.process.communicate(timeout=30 * SLACK)
        deadline = time.monotonic() + 5 * SLACK
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, err
        return self.process.returncode, out, err

    def processes(self) -> list[int]:
        return processes_with(MARK, self._mark)

    def await_processes(self, count: int) -> None:
        deadline = time.monotonic() + 20 * SLACK
        while len(self.processes()) < count:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_each_line_has_its_rank() -> None:
    code, out, err = Started("-n", 3, "--", "sh", "-c", "echo a; echo $TNT_LOCAL_RANK of $TNT_SIZE; printf b >&2").end()
    assert code == 0
    assert sorted(out.splitlines()) == sorted(f"[rank {r}] {text}" for r in range(3) for text in ("a", f"{r} of 3"))
    assert sorted(err.splitlines()) == [f"[rank {rank}] b" for rank in range(3)]
    assert Started("-n", 2, "--no-prefix", "echo", "-n", "a").end() == (0, "a\na\n", "")
    assert Started("-n", 1, "echo", "a").end() == (0, "a\n", "")
    assert Started("-np", 1, "echo", "-np", "2").end() == (0, "-np 2\n", "")  # as with mpirun; the second is the program's


def test_rank_0_reads_the_input(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("text\n")
    with (tmp_path / "input").open() as given:
        code, out, _ = Started("-n", 2, "--", "cat", stdin=given).end()
    assert (code, out) == (0, "[rank 0] text\n")


def test_ranks_find_each_other(summing: Path) -> None:
    assert Started("-n", 3, "--", summing).end() == (0, "[rank 0] sum 3\n", "")


def test_the_others_go_on_if_they_are_to() -> None:
    script = "[ $TNT_RANK = 1 ] && kill -9 $$; [ $TNT_RANK = 2 ] && exit 3; sleep 0.5; echo still here"
    code, out, err = Started("-n", 3, "--keep-going", "--", "sh", "-c", script).end()
    assert (code, out) == (0, "[rank 0] still here\n")
    assert re.search(r"^tnt-run: rank 1 \(pid \d+\) was killed by SIGKILL; the others go on$", err, re.MULTILINE), err
    assert re.search(r"^tnt-run: rank 2 \(pid \d+\) .* 3; the others go on$", err, re.MULTILINE), err
    code, out, err = Started("-n", 2, "--keep-going", "--", "sh", "-c", "exit $((3 + TNT_RANK))").end()
    assert code in (3, 4)
    code, out, err = Started("-n", 2, "--keep-going", "--hosts", "somewhere:2", "--", "true").end()
    assert code == 2
    assert "--keep-going is for ranks on this host" in err


def test_the_rank_that_was_killed_is_named_and_the_others_say_why(summing: Path) -> None:
    code, _, err = Started("-n", 3, "--", summing, "killed").end()
    assert code == 128 + signal.SIGKILL
    lines = err.splitlines()
    assert lines[-1].startswith("tnt-run: rank 1 (pid ") and ") was killed by SIGKILL; the other ranks" in lines[-1], err
    assert all(any(line.startswith(f"[rank {rank}] rank 1 ") for line in lines) for rank in (0, 2)), err


@pytest.mark.parametrize("faulty", [0, 1])
def test_a_rank_that_ends_before_it_joins_is_told_to_the_others(summing: Path, faulty: int) -> None:
    """Long before their deadline."""
    code, _, err = Started("-n", 3, "--", summing, "before", faulty).end()
    assert code == 1 and f"rank {faulty} exited with code 0 before " in err, err


LISTENS = """
import os, socket, sys, time
if os.environ["TNT_RANK"] == "1":
    time.sleep(0.3); sys.exit(0)
if os.fork() == 0:
    os.setuid(65534)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\\0" + os.environ["TNT_RENDEZVOUS"]); listener.listen(); listener.settimeout(10)
    with listener.accept()[0] as connection: print("told", connection.makefile().read())
    sys.exit(0)
os.wait()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start another user's process")
def test_the_token_is_not_told_to_another_user() -> None:
    code, out, err = Started("-n", 2, "--", sys.executable, "-c", LISTENS).end()
    assert (code, out.strip()) == (0, "[rank 0] told"), err


def test_ranks_that_do_not_notice_are_ended() -> None:
    code, _, err = Started("-n", 2, "--", "sh", "-c", "[ $TNT_RANK = 1 ] && exit 3; setsid sleep 1000 & sleep 1000").end()
    assert code == 3
    assert err.startswith("tnt-run: rank 1 (pid ") and err.endswith(") exited with code 3; the other rank has ended\n"), err


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "SIGINT"), (signal.SIGTERM, "SIGTERM")])
def test_a_signal_ends_all(number: signal.Signals, name: str) -> None:
    job = Started("-n", 2, "--", "sh", "-c", "trap '' INT; echo begun; sleep 1000 & wait")
    assert job.process.stdout is not None and job.process.stdout.readline().endswith("begun\n")
    job.process.send_signal(number)
    code, _, err = job.end()
    assert (code, err) == (128 + number, f"tnt-run: interrupted by {name}; ending 2 ranks\n")


@pytest.mark.parametrize("victim", ["supervisor", "launcher"])
def test_nothing_is_left_of_a_killed_launcher(victim: str) -> None:
    job = Started("-n", 2, "--", "sh", "-c", "setsid sleep 1000 & sleep 1000")
    job.await_processes(2 + 2 * 3)
    first = job.process.pid
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    os.kill(first if victim == "supervisor" else int(children[0]), signal.SIGKILL)
    code, _, err = job.end()
    assert code == (-signal.SIGKILL if victim == "supervisor" else 128 + signal.SIGKILL)
    assert victim == "supervisor" or " was killed by SIGKILL; " in err, err


def test_output_that_is_lost_is_no_success() -> None:
    with Path("/dev/full").open("w") as full:
        code, _, err = Started("-n", 2, "--", "echo", "a", stdout=full).end()
    lost = "No space left on device; what was to come there is lost"
    assert (code, err) == (1, f"tnt-run: cannot write to standard output: {lost}\n")


def test_hosts_are_handed_to_mpirun(tmp_path: Path) -> None:
    shown = tmp_path / "mpirun"
    shown.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    shown.chmod(0o755)
    (tmp_path / "hosts").write_text("a slots=2  # first\n\nb:3\na\n")
    options = ("--hostfile", tmp_path / "hosts", "--mpirun", f"{shown} --verbose")
    code, out, err = Started("-n", 5, *options, "--", "./train", "-n").end()
    words = ast.literal_eval(out)
    assert code == 0, err
    assert words[:5] == ["--verbose", "--host", "a:3,b:2", "-n", "5"] and words[-2:] == ["./train", "-n"], out
    assert ["-x", "TNT_TIMEOUT"] in [words[i : i + 2] for i in range(len(words))]
    assert Started("--srun", "-n", 2, "--dry-run", "--", "./a b").end()[1] == (
        "srun --mpi=pmix --kill-on-bad-exit=1 -n 2 --label './a b'\n"
    )
    assert Started("--hosts", "localhost:2", "--", "echo", "a").end()[1] == "[rank 0] a\n[rank 1] a\n"
    assert ast.literal_eval(Started("--mpirun", shown, "-n", 2, "x").end()[1])[:2] == ["-n", "2"]  # asked for on this host


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "no program"),
        ("x", "how many ranks"),
        ("-n 0 x", "-n 0: expected a whole number from 1 to"),
        ("-np two x", "-n two: expected a whole number"),
        ("-n 9999 x", "-n 9999: one host can have 512 ranks at most"),
        ("--nope -n 2 x", "unknown option --nope"),
        ("-n 2 --hosts a --hostfile b x", "are both given"),
        ("-n 9 --hosts a:2 x", "-n 9 is more than the 2 slots"),
        ("--hosts a:0 x", "a:0: the number of slots"),
        ("--hosts a,,b x", "'' names no host"),
        ("--hostfile /nonexistent x", "/nonexistent: cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words: str, message: str) -> None:
    code, out, err = Started(*words.split()).end()
    assert (code, out) == (2, "")
    assert err.startswith("tnt-run: ") and message in err and err.count("\n") == 1, err


def test_a_program_that_is_none_is_named() -> None:
    none = "tnt-run: cannot start /nonexistent: No such file or directory\n"
    assert Started("-n", 2, "/nonexistent").end() == (127, "", none)
    assert Started("-n", 2, "/").end()[::2] == (126, "tnt-run: cannot start /: Permission denied\n")
