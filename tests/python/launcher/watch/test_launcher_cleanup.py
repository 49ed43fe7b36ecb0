"""What jobs have left behind is found by its mark and ended; nothing else is touched."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tarantella.launcher.base.mark import is_left_over, mark_of, own_mark, running
from tarantella.launcher.start.own_program import START
from tarantella.variables import LAUNCHER

HOST = socket.gethostname()
# a rank whose child lives on when the launcher and its supervisor are killed at once
LEAVES = """
import subprocess
child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
mark("launcher", os.environ["TNT_INTERNAL_LAUNCHER"].partition(":")[0])
mark(f"child{rank}", child.pid); time.sleep(60)
"""
WAITS = "import time; time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('deaf', 'w'); time.sleep(60)"


@pytest.fixture
def children(here):
    """Starts ranks with children, kills the launcher, and gives the children's numbers."""
    found: list[int] = []

    def start(ranks: int = 2, child: str = WAITS, kill: bool = True) -> list[int]:
        launcher = here.start("-n", ranks, "--", here.script(f"CHILD = {child!r}\n{LEAVES}"))
        found.extend(here.pids(*(f"child{rank}" for rank in range(ranks))))
        if kill:
            launcher.send_signal(signal.SIGSTOP)  # else the supervisor would end them
            os.kill(int(here.read("launcher")), signal.SIGKILL)
            launcher.kill()
            launcher.wait()
        return found

    yield start
    for pid in found:
        if running(pid):
            os.kill(pid, signal.SIGKILL)


def test_what_is_left_over_is_ended(here, gone, children):
    pids = children()
    bystander = subprocess.Popen([sys.executable, "-c", WAITS])
    try:
        shown = here.run("--cleanup", "--dry-run")
        assert shown.returncode == 0
        assert f" on {HOST} would be ended: " in shown.stderr
        assert all(running(pid) and f"{pid} (" in shown.stderr for pid in pids)
        result = here.run("--cleanup", "--", "any.py", "words")
        assert result.returncode == 0
        assert result.stderr.startswith("tarantella: ") and f" on {HOST} signalled to end: " in result.stderr
        assert all(f"{pid} (" in result.stderr for pid in pids)
        gone(pids)
        assert running(bystander.pid)
    finally:
        bystander.kill()
        bystander.wait()


def test_jobs_that_go_on_are_left_alone(here, children):
    pids = children(kill=False)
    result = here.run("--cleanup", "--force")
    assert result.returncode == 0
    assert not any(f"{pid} (" in result.stderr for pid in pids)
    assert all(map(running, pids))


def test_what_does_not_heed_needs_force(here, gone, children):
    pids = children(1, STUBBORN)
    here.read("deaf")
    result = here.run("--cleanup")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"tarantella: still running on {HOST}: {pids[0]}; use --cleanup --force"
    assert here.run("--cleanup", "--force").returncode == 0
    gone(pids)


def test_what_is_stopped_is_ended_too(here, gone, children):
    pids = children(1)
    os.kill(pids[0], signal.SIGSTOP)
    assert here.run("--cleanup").returncode == 0
    gone(pids)


def test_a_mark_is_of_one_process():
    mark = own_mark()
    pid, begin, namespace = mark.split(":", 2)
    assert not is_left_over(mark)
    assert is_left_over(f"{pid}:{int(begin) + 1}:{namespace}")  # its number is another's now
    assert not is_left_over(f"{pid}:{int(begin) + 1}:pid:[1]")  # in another container
    assert not any(map(is_left_over, ("", "nonsense", "1:2")))
    child = subprocess.Popen([sys.executable, "-c", WAITS], env={**os.environ, LAUNCHER: mark})
    try:
        while mark_of(child.pid) != mark:  # until it has become the other program
            time.sleep(0.005)
        theirs = f"{child.pid}:0:{namespace}"
        assert is_left_over(theirs)
    finally:
        child.kill()
        child.wait()
    assert mark_of(child.pid) is None


def test_the_hosts_are_cleaned_by_mpirun(here):
    (here.folder / "hosts").write_text("a slots=4\nb\na\n")
    path = here.folder / "mpirun"
    path.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exec echo 'mpirun (Open MPI) 4.1.4'\n"
        'echo "$@"\nwhile [ $1 != ' + sys.executable + ' ]; do shift; done\nexec "$@"\n'
    )
    path.chmod(0o755)
    result = here.run("--hostfile", "hosts", "--mpirun", "./mpirun", "--cleanup", "--force", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert " --host a:1,b:1 -n 2 " in result.stdout
    assert result.stdout.endswith(f" {sys.executable} {START} tarantella.launcher.watch.cleanup --force --dry-run\n")
    assert f" on {HOST}" in result.stderr
