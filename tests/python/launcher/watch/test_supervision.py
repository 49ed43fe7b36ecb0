"""What ranks have started ends with a job that fails, and with the launcher, however that is killed."""

from __future__ import annotations

import os
import re
import signal

import pytest

from conftest import TIMEOUT

# a rank with a child in a session of its own, of which the environment tells nothing, and with a child of that
WITH_CHILDREN = """
    import subprocess
    text = f"sleep 60 & echo $! > part{rank}; mv part{rank} grandchild{rank}; exec sleep 60"
    child = subprocess.Popen(["/bin/sh", "-c", text], start_new_session=True, env={})
    mark("launcher", os.getppid()); mark(f"pid{rank}", os.getpid()); mark(f"child{rank}", child.pid)
    wait_for("grandchild0"); wait_for("grandchild1")
    """
NAMES = ["child0", "child1", "grandchild0", "grandchild1"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("whom", ["supervisor", "launcher"])
def test_nothing_outlives_the_launcher(here, gone, number, whom):
    started = here.start("-n", 2, "--", here.script(WITH_CHILDREN + "time.sleep(60)"))
    pids = here.pids(*NAMES, "pid0", "pid1", "launcher")
    assert pids[-1] != started.pid
    os.kill(started.pid if whom == "supervisor" else pids[-1], number)
    _, said = started.communicate(timeout=TIMEOUT)
    gone(pids, within=10)
    if whom == "launcher" and number == signal.SIGKILL:
        assert started.returncode == 128 + number
        last = re.sub(r"\d+ processes", "N processes", said.splitlines()[-1])
        how = f"was killed by {number.name}; N processes of the job were ended"
        assert last == f"tarantella: the launcher (pid {pids[-1]}) {how}"
    elif number == signal.SIGTERM:
        assert started.returncode == 128 + number
        assert said.count("tarantella: interrupted; ending 2 ranks\n") == 1


def test_nothing_outlives_a_job_that_fails(here, gone):
    body = WITH_CHILDREN + "sys.exit(3) if rank else time.sleep(60)"
    assert here.ranks(2, body).returncode == 3
    gone(here.pids(*NAMES))


def test_what_has_left_its_session_may_outlive_a_job_that_ends_well(here):
    """Such as a service that sends what is left to send."""
    launcher = here.start("-n", 2, "--", here.script(WITH_CHILDREN))
    assert launcher.wait(TIMEOUT) == 0
    for pid in here.pids(*NAMES):  # they have the launcher's streams, which would be read until they end
        os.kill(pid, signal.SIGKILL)


def test_orphans_that_end_are_forgotten(here):
    body = """
        import subprocess
        orphan = int(subprocess.check_output(["sh", "-c", "sleep 0.1 > /dev/null & echo $!"]))
        for _ in range(400):
            if not Path(f"/proc/{orphan}").exists(): break
            time.sleep(0.01)
        print(Path(f"/proc/{orphan}").exists())
        """
    assert here.ranks(1, body).stdout == "False\n"
