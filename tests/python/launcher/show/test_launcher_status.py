"""`tarantella status` and SIGUSR1: what a running job says of its ranks, and to whom."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tarantella.inspection import jobs
from tarantella.inspection import status as status_module
from tarantella.inspection.jobs import Answers
from tarantella.launcher.show.status_socket import PREFIX

# rank 1 stops itself when all have made 16 calls; the others come to call 17
ONE_STOPS = """
    import numpy as np
    import tarantella as tnt
    from tarantella import _native
    for step in range(16):
        tnt.all_reduce(np.zeros(10))
        _native.progress(step + 1, 32.0 * (step + 1))
    mark(f"pid{rank}", os.getpid())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    tnt.all_reduce(np.zeros(4096))
    """


def status_of(here, pid):
    found = here.run("status", pid, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def wait_until_seen(here, pid, rank):
    """Until a rank is seen to wait for others."""
    for _ in range(100):
        told = status_of(here, pid)
        if told["members"][rank].get("waits"):
            return told
        time.sleep(0.1)
    raise AssertionError(f"rank {rank} is not seen to wait: {told}")


def test_a_stopped_rank_is_the_one_that_is_waited_for(here):
    job = here.start("-n", 3, "--timeout", 60, "--flight-recorder", here.folder / "none", "--", here.script(ONE_STOPS))
    pids = here.pids("pid0", "pid1", "pid2")
    wait_until_seen(here, job.pid, 0)
    told = wait_until_seen(here, job.pid, 2)
    assert (told["pid"], told["ranks"], told["restarts"]) == (job.pid, 3, 0)
    assert [one["pid"] for one in told["members"]] == pids
    assert [one["state"] for one in told["members"]] == ["running", "stopped", "running"]
    assert [one.get("waits_for") for one in told["members"]] == [[1], None, [1]]
    assert [one["step"] for one in told["members"]] == [16, 16, 16]
    for waiting in (told["members"][0], told["members"][2]):
        assert (waiting["number"], waiting["call"]) == (17, "all_reduce sum of 4096 float64")
        assert 0 <= waiting["since"] < 60 and waiting["memory"] > 1 << 20

    lines = here.run("status", job.pid).stdout.splitlines()
    assert lines[0].startswith(f"job {job.pid} on ") and lines[0].endswith(str(here.folder / "rank.py"))
    assert "waits in call 17: all_reduce sum of 4096 float64 since " in lines[1] and lines[1].endswith(" for rank 1")
    assert lines[2].startswith(f"  rank 1 (pid {pids[1]}) is stopped, step 16")

    if os.geteuid() == 0:
        assert_refused(job.pid)

    os.kill(job.pid, signal.SIGUSR1)
    printed = [job.stderr.readline() for _ in range(5)][1:]
    assert printed[0].startswith(f"tarantella: job {job.pid} on ")
    assert [line.split(",")[0] for line in printed[1:]] == [
        f"tarantella:   rank {rank} (pid {pid}) is {'stopped' if rank == 1 else 'running'}" for rank, pid in enumerate(pids)
    ]
    os.kill(pids[1], signal.SIGCONT)  # and the job goes on
    _, said = job.communicate(timeout=60)
    assert job.returncode == 0, said
    assert not (here.folder / "none").exists()  # records are of jobs that fail


def assert_refused(pid):
    """Another user gets no answer, whether he asks as he should or not."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(65534)
            os.setuid(65534)
            answers = jobs.ask_all()
            sockets = Path("/proc/net/unix").read_text().splitlines()
            name = next(line.rpartition("@")[2] for line in sockets if f"{PREFIX}{pid}-" in line)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(f"\0{name}")
                code = 0 if not connection.recv(1) and pid in answers.strangers and not answers.jobs else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_job_that_does_not_exist(here):
    found = here.run("status", 1)
    assert found.returncode == 1
    assert found.stderr.startswith("tarantella: there is no job 1 of yours on this host")
    assert here.run("status", "one").returncode == 2


TOLD = {
    "pid": 7, "job": "a", "host": "h", "hosts": [], "command": "python train.py", "ranks": 2, "only": None, "began": 0.0,
    "restarts": 1, "members": [{"rank": 0, "pid": 8, "state": "was killed by SIGKILL", "memory": None}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "words", "code", "said"),
    [
        (Answers((), (), ()), [], 1, "no job of yours runs on this host\n"),
        (Answers((), (9,), ()), [], 1, "job 9 does not answer: its launcher may be stopped\n"),
        (Answers((), (), (9,)), ["9"], 1, "job 9 belongs to another user, and tells only that one what it does\n"),
        (Answers((TOLD,), (), ()), ["9"], 1, "there is no job 9 of yours on this host: there is 7\n"),
        (Answers((TOLD,), (), ()), [], 0, "  rank 0 (pid 8) was killed by SIGKILL\nrank 1: not on this host; "),
        (Answers((TOLD, {**TOLD, "pid": 17}), (), ()), [], 0, "job 17 on h: 2 ranks for "),
    ],
)
def test_what_is_said_of_no_job_of_one_and_of_several(monkeypatch, capsys, answers, words, code, said):
    monkeypatch.setitem(status_module.__globals__, "ask_all", lambda: answers)
    assert status_module(words) == code
    out, err = capsys.readouterr()
    assert said in out + err
    assert ("tarantella status 7" in out) == (len(answers.jobs) > 1)


def test_a_table_on_a_terminal(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setitem(status_module.__globals__, "ask_all", lambda: Answers((TOLD,), (), ()))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    assert status_module([]) == 0
    out = capsys.readouterr().out
    assert all(column in out for column in ("samples/s", "waits for", "was killed by SIGKILL"))
