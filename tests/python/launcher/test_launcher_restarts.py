"""`--max-restarts`: when a job is started again, on how many ranks, and that nothing of the last start is left then."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sys
from textwrap import dedent

import pytest

COUNT = """
number = int(os.environ["TNT_RESTART"])
mark(f"start{number}-{rank}", os.environ["TNT_SIZE"])
"""


def counted(body: str) -> str:
    """The same script, which notes that it was started."""
    return COUNT + dedent(body)


def restarts(result) -> list[str]:
    """What the launcher says of restarts, process numbers left out."""
    said = [re.sub(r"pid \d+", "pid N", line) for line in result.stderr.splitlines()]
    return [line.removeprefix("tarantella: ") for line in said if "restart" in line]


def starts(here) -> list[int]:
    """The number of ranks of each start."""
    found: dict[int, set[str]] = {}
    for path in here.folder.glob("start*-*"):
        found.setdefault(int(path.name[5:].partition("-")[0]), set()).add(path.read_text())
    assert sorted(found) == list(range(len(found)))
    sizes = [found[number] for number in sorted(found)]
    assert all(len(size) == 1 for size in sizes)
    return [int(*size) for size in sizes]


def test_a_failed_job_is_started_again_until_it_ends_well(here):
    result = here.ranks(
        2,
        counted("""
        if number < 2 and rank == 1:
            wait_for(f"start{number}-0")
            sys.exit(3)
        """),
        "--max-restarts",
        5,
    )
    assert result.returncode == 0, result.stderr
    assert starts(here) == [2, 2, 2]
    why = "rank 1 (pid N) exited with code 3"
    assert restarts(result) == [f"restart 1 of 5 on 2 ranks: {why}", f"restart 2 of 5 on 2 ranks: {why}"]
    assert result.stderr.count("tarantella: the next start is in 1 s\n") == 1  # the first is made at once


def test_what_was_drawn_without_a_seed_is_drawn_again(here):
    """The order of an unseeded shuffle, in which a checkpoint finds its place."""
    drawn = """
        from tarantella.seeding import agreed_seed
        mark(f"seed{number}-{rank}", str(agreed_seed()))
        wait_for(f"seed{number}-{1 - rank}")
        sys.exit(number == 0)
        """
    seeds = []
    for _ in range(2):
        assert here.ranks(2, counted(drawn), "--max-restarts", 1).returncode == 0
        assert starts(here) == [2, 2]
        of_job = {path.read_text() for path in here.folder.glob("seed*-*")}
        assert len(of_job) == 1
        seeds += of_job
        for path in [*here.folder.glob("seed*-*"), *here.folder.glob("start*-*")]:
            path.unlink()
    assert len(set(seeds)) == 2


def test_restarts_have_an_end(here):
    result = here.ranks(1, counted("sys.exit(3)"), "--max-restarts", 2)
    assert result.returncode == 3
    assert starts(here) == [1, 1, 1]
    assert restarts(result)[-1] == "not restarted: 2 of 2 restarts made"


def test_without_the_option_nothing_is_started_again(here):
    result = here.ranks(1, "mark('started', os.environ.get('TNT_RESTART')); sys.exit(3)")
    assert (result.returncode, here.read("started"), restarts(result)) == (3, "None", [])


def test_a_script_with_a_syntax_error_is_not_started_again(here):
    result = here.ranks(1, counted("1 +"), "--max-restarts", 3)
    assert result.returncode == 1
    [said] = restarts(result)
    assert re.fullmatch(rf"not restarted: {here.folder}/rank.py, line \d+ has a SyntaxError: correct the script", said)


def test_a_failed_import_is_not_started_again(here):
    """The script reports it, as `import tarantella` has seen to it, though it has not joined."""
    result = here.ranks(1, "import tarantella\nimport no_such_module", "--max-restarts", 3)
    assert result.returncode == 1
    why = "ModuleNotFoundError: No module named 'no_such_module'"
    assert restarts(result) == [f"not restarted: the next start would fail alike: {why}"]


def test_the_same_error_in_the_same_step_is_not_met_a_third_time(here):
    body = (
        "from tarantella import reporting\n"
        "with reporting.step_of_failure(lambda: 7 + (number == 0)): raise ValueError('a bad sample')"
    )
    result = here.ranks(1, counted(body), "--max-restarts", 9)
    assert starts(here) == [1, 1, 1]
    why = "rank 0 (pid N) exited with code 1: ValueError: a bad sample"
    assert restarts(result) == [
        f"restart 1 of 9 on 1 rank: {why}",
        f"restart 2 of 9 on 1 rank: {why}",
        "not restarted: the last start has failed alike: ValueError: a bad sample (step 7)",
    ]


def test_a_pause_grows_and_ends_with_a_signal(here):
    launcher = here.start("-n", 1, "--max-restarts", 9, "--", here.script(counted("sys.exit(3)")))
    assert launcher.stderr is not None
    said = ""
    while "the next start is in 2 s\n" not in said:
        said += launcher.stderr.readline()
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(timeout=10) == 128 + signal.SIGTERM
    assert starts(here) == [1, 1, 1]


def test_a_script_that_cannot_be_started_is_not_started_again(here):
    (here.folder / "broken").write_text("#!/no/such/interpreter\n")
    (here.folder / "broken").chmod(0o755)
    result = here.run("-n", 1, "--max-restarts", 3, "--", "broken")
    assert (result.returncode, restarts(result)) == (126, [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_job_that_was_asked_to_end_is_not_started_again(here, number):
    script = here.script(counted("mark(f'pid{rank}', os.getpid())\nwhile True: time.sleep(1)"))
    launcher = here.start("-n", 2, "--max-restarts", 3, "--", script)
    here.pids("pid0", "pid1")
    launcher.send_signal(number)
    _, said = launcher.communicate(timeout=10)
    assert launcher.returncode == 128 + number
    assert "restart" not in said
    assert starts(here) == [2]


def test_nor_is_one_that_was_asked_to_end_while_it_failed(here):
    """Rank 1 has failed, and rank 0 takes its time to end."""
    script = here.script(
        counted("""
        if rank == 1:
            wait_for("pid0")
            mark("failed", os.getpid())
            sys.exit(3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        mark("pid0", os.getpid())
        while True: time.sleep(1)
        """)
    )
    launcher = here.start("-n", 2, "--max-restarts", 3, "--", script)
    here.wait_until_reaped(*here.pids("failed"))
    launcher.send_signal(signal.SIGTERM)
    _, said = launcher.communicate(timeout=10)
    assert launcher.returncode == 3
    assert "restart" not in said
    assert starts(here) == [2]


def test_nothing_of_the_last_start_runs_in_the_next_one(here, gone):
    """A process that has left the rank's session, and so does not end with it."""
    result = here.ranks(
        1,
        """
        import subprocess
        number = int(os.environ["TNT_RESTART"])
        if number == 0:
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
            mark("child", child.pid)
            sys.exit(1)
        pid = Path("child").read_text()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if Path(f"/proc/{pid}").exists() else "X"
        mark("state", state)
        """,
        "--max-restarts",
        1,
    )
    assert result.returncode == 0, result.stderr
    assert here.read("state") in "ZX"
    gone(here.pids("child"))


KILL_RANK_1 = """
    if number == 0 and rank == 1:
        wait_for("start0-0"), wait_for("start0-2")
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 0:
        time.sleep(30)
    """


def test_a_killed_rank_is_left_out_where_that_is_allowed(here):
    result = here.ranks(3, counted(KILL_RANK_1), "--max-restarts", 2, "--min-ranks", 1)
    assert result.returncode == 0, result.stderr
    assert starts(here) == [3, 2]
    assert restarts(result) == ["restart 1 of 2 on 2 ranks: rank 1 (pid N) was killed by SIGKILL"]


def test_a_rank_that_exits_is_not_lost(here):
    result = here.ranks(2, counted("sys.exit(3 if number == 0 else 0)"), "--max-restarts", 1, "--min-ranks", 1)
    assert result.returncode == 0, result.stderr
    assert starts(here) == [2, 2]


def test_too_few_ranks_end_the_job(here):
    result = here.ranks(3, counted(KILL_RANK_1), "--max-restarts", 2, "--min-ranks", 3)
    assert result.returncode == 128 + signal.SIGKILL
    assert starts(here) == [3]
    assert restarts(result) == [
        "not restarted: 2 ranks left, fewer than --min-ranks 3 (ranks that were killed do not come back)"
    ]


def test_the_ranks_that_are_left_share_the_shards_evenly(here):
    body = counted("wait_for('start0-3')") + dedent(KILL_RANK_1)
    result = here.ranks(4, body, "--max-restarts", 2, "--min-ranks", 2, "--reproducible", 8)
    assert result.returncode == 0, result.stderr
    assert starts(here) == [4, 2]


def test_too_few_ranks_share_the_shards(here):
    body = counted("wait_for('start0-3')") + dedent(KILL_RANK_1)
    result = here.ranks(4, body, "--max-restarts", 2, "--min-ranks", 3, "--reproducible", 8)
    assert result.returncode == 128 + signal.SIGKILL
    assert "2 ranks that share 8 shards evenly left, fewer than --min-ranks 3" in restarts(result)[0]


def test_a_dry_run_starts_nothing(here):
    result = here.ranks(1, "mark('started')", "--max-restarts", 2, "--dry-run")
    assert result.returncode == 0
    assert not (here.folder / "started").exists()


# ------------------------------------------------------------------------------------------------------ several hosts

STARTS_ALL_HERE = '''#!{python}
"""Stands in for Open MPI's mpirun: hosts are names, and those of which there is a file gone-NAME do not answer."""
import os, subprocess, sys
from pathlib import Path
words = sys.argv[1:]
if words == ["--version"]:
    sys.exit(print("mpirun (Open MPI) 4.1.4"))
command = words[words.index("{python}"):]
slots = [word.split(":") for word in words[words.index("--host") + 1].split(",")]
hosts = [host for host, count in slots for _ in range(int(count))]
for host in hosts:
    if Path(f"gone-{{host}}").exists():
        sys.exit(f"ssh: connect to host {{host}} port 22: No route to host")
with open("asked", "a") as file:
    print(" ".join(hosts), "ends" if "--job" in command else "starts", file=file)
each = [{{**os.environ, "OMPI_COMM_WORLD_RANK": str(i), "OMPI_COMM_WORLD_SIZE": str(len(hosts))}} for i in range(len(hosts))]
ranks = [subprocess.Popen(command, env=environment) for environment in each]
code = 0
for _ in ranks:
    code = os.waitstatus_to_exitcode(os.wait()[1])
    if code:
        break
for rank in ranks if code else []:
    rank.terminate()
for rank in ranks:
    rank.wait()
sys.exit(code)
'''

ON_HOSTS = """
import os, signal, sys, time
from pathlib import Path
rank, number = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["TNT_RESTART"])
Path(f"start{number}-{rank}").write_text(os.environ["OMPI_COMM_WORLD_SIZE"])
while not all(Path(f"start{number}-{i}").exists() for i in range(int(os.environ["OMPI_COMM_WORLD_SIZE"]))): time.sleep(0.01)
"""


@pytest.fixture
def on_hosts(here):
    """Runs a script on hosts that are all this machine."""
    mpirun = here.folder / "mpirun"
    mpirun.write_text(STARTS_ALL_HERE.format(python=sys.executable))
    mpirun.chmod(0o755)

    def run(hosts: str | None, body: str, *options: object):
        script = here.folder / "rank.py"
        script.write_text(ON_HOSTS + dedent(body))
        return here.run("--mpirun", mpirun, *(["--hosts", hosts] if hosts else []), *options, "--", script)

    return run


def asked(here) -> list[str]:
    return (here.folder / "asked").read_text().splitlines()


def test_a_job_on_hosts_is_started_again(here, on_hosts):
    result = on_hosts("a:1,b:1", "sys.exit(3 if rank == 1 and number == 0 else 0)", "--max-restarts", 1)
    assert result.returncode == 0, result.stderr
    assert asked(here) == ["a b starts", "a b ends", "a b starts"]
    why = f"rank 1 (pid N on {socket.gethostname()}) exited with code 3"
    assert restarts(result) == [f"restart 1 of 1 on 2 ranks (a:1, b:1): {why}"]


def test_a_host_whose_rank_was_killed_is_left_out_and_one_without_ranks_takes_its_place(here, on_hosts):
    body = "if rank == 1 and number == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
    result = on_hosts("a:1,b:1,c:1", body, "-n", 2, "--max-restarts", 1, "--min-ranks", 2)
    assert result.returncode == 0, result.stderr
    assert asked(here) == ["a b starts", "a b c ends", "a c starts"]
    assert starts(here) == [2, 2]


def test_a_host_that_does_not_answer_is_left_out(here, on_hosts):
    body = "if rank == 0 and number == 0:\n    Path('gone-a').touch()\n    sys.exit(1)\n"
    result = on_hosts("a:2,b:2", body, "--max-restarts", 1, "--min-ranks", 2)
    assert result.returncode == 0, result.stderr
    assert asked(here) == ["a a b b starts", "b ends", "b b starts"]
    assert "restart 1 of 1 on 2 ranks (b:2)" in restarts(result)[0]


def test_a_host_that_is_back_is_used_again_and_the_hostfile_is_read_again(here, on_hosts):
    body = """
        if number == 0 and rank == 0: Path("gone-a").touch(); sys.exit(1)
        if number == 1 and rank == 0:
            os.remove("gone-a"); Path("hosts").write_text("a\\nb\\nc\\n"); sys.exit(2)
        """
    (here.folder / "hosts").write_text("a\nb\n")
    result = on_hosts(None, body, "--hostfile", "hosts", "--max-restarts", 2, "--min-ranks", 1)
    assert result.returncode == 0, result.stderr
    assert asked(here) == ["a b starts", "b ends", "b starts", "a b c ends", "a b starts"]


def test_too_few_hosts_end_the_job(here, on_hosts):
    body = "if rank == 0 and number == 0:\n    Path('gone-a').touch()\n    sys.exit(4)\n"
    result = on_hosts("a:2,b:2", body, "--max-restarts", 1, "--min-ranks", 3)
    assert result.returncode == 4
    assert restarts(result) == ["not restarted: 2 ranks left, fewer than --min-ranks 3 (gone: a)"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun on this machine")
def test_a_real_mpirun_is_started_again(here, monkeypatch):
    monkeypatch.setenv("HYDRA_LAUNCHER", "fork")
    script = here.folder / "rank.py"
    body = "if rank == 1 and number == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
    script.write_text(ON_HOSTS.replace("rank, number = int(", "rank, number = int(os.environ.get('PMI_RANK') or ")
                      .replace('os.environ["OMPI_COMM_WORLD_SIZE"]', 'str(2)') + body)  # fmt: skip
    result = here.run("--mpirun", "mpirun", "--hosts", "localhost:2", "--max-restarts", 1, "--", script)
    assert result.returncode == 0, result.stderr
    assert starts(here) == [2, 2]
    assert len(restarts(result)) == 1
