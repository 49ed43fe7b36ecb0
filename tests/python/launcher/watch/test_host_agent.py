"""Ranks of an elastic job on several hosts: our process there starts them, shows them to the launcher, and ends them.

The hosts are addresses of this machine, and the remote shell is a shell. `keras/elastic/test_several_hosts.py` has real ones.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket

import pytest

from conftest import alive, wait_until
from tarantella.launcher.start.environment import Rendezvous
from tarantella.launcher.start.frames import MAGIC, Kind, Link
from tarantella.launcher.start.rendezvous import ExitNotices

HOSTS = ("127.0.0.2", "127.0.0.3")


@pytest.fixture
def job(here):
    shell = here.folder / "shell"
    shell.write_text('#!/bin/sh\necho "host $1" >&2\necho a shell may greet\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    own = ["--elastic", "--remote-shell", shell, "--hosts", ",".join(f"{host}:2" for host in HOSTS)]
    here.start_on_hosts = lambda body, *options: here.start(*own, *options, "--", here.script(body))
    return here


def ended(process, seconds: float = 60) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


PLACE = """
    import json
    names = ("TNT_RANK", "TNT_SIZE", "TNT_LOCAL_RANK", "TNT_LOCAL_SIZE", "TNT_RENDEZVOUS", "TNT_INTERNAL_ELASTIC", "GIVEN")
    mark(f"place{rank}", json.dumps([os.environ.get(name) for name in names]))
    print("rank", rank, "x" * 200_000)
    """


def test_ranks_have_their_places_and_rank_0_is_shown(job):
    code, out, err = ended(job.start_on_hosts(PLACE, "-x", "GIVEN=1 2"))
    assert code == 0, err
    assert out.split()[:2] == ["rank", "0"] and len(out.split()[2]) == 200_000 and len(out.split()) == 3
    places = [json.loads(job.read(f"place{rank}")) for rank in range(4)]
    assert [one[:4] for one in places] == [
        ["0", "4", "0", "2"],
        ["1", "4", "1", "2"],
        ["2", "4", "0", "2"],
        ["3", "4", "1", "2"],
    ]
    assert {one[4] for one in places} == {places[0][4]} and re.fullmatch(r"tcp://127.0.0.2:\d+", places[0][4])
    assert [one[5:] for one in places] == [[str(rank), "1 2"] for rank in range(4)]
    assert "host 127.0.0.3" in err  # what a remote shell says is shown
    assert "no rank has joined" not in err


def test_a_failure_ends_the_job_and_names_host_and_reason(job):
    body = """
        mark(f"pid{rank}", os.getpid())
        if rank == 3:
            for other in range(3): wait_for(f"pid{other}")
            report("primary", "ValueError: odd"); sys.exit(5)
        time.sleep(60)
        """
    code, _, err = ended(job.start_on_hosts(body))
    assert code == 5, err
    assert re.search(r"tarantella: rank 3 \(pid \d+ on 127.0.0.3\) exited with code 5: ValueError: odd", err), err
    assert not any(map(alive, job.pids("pid0", "pid1", "pid2")))


def test_a_host_whose_process_is_killed_is_lost_with_its_ranks(job):
    body = """
        mark(f"pid{rank}", os.getpid()); mark(f"parent{rank}", os.getppid())
        wait_for("go")
        """
    process = job.start_on_hosts(body)
    pids = job.pids(*(f"pid{rank}" for rank in range(4)))
    os.kill(job.pids("parent2")[0], signal.SIGKILL)
    wait_until(lambda: not any(map(alive, pids[2:])), "the kernel to kill its ranks")
    assert all(map(alive, pids[:2]))
    said = [next(line for line in process.stderr if f"rank {rank} " in line) for rank in (2, 3)]  # before others end
    (job.folder / "go").touch()
    code, _, err = ended(process)
    err = "".join([*said, err])
    assert code == 0, err
    for rank, left in ((2, "3 ranks go"), (3, "2 ranks go")):
        why = "was lost with its host (127.0.0.3: the connection to it has ended)"
        assert re.search(rf"rank {rank} \(pid {pids[rank]} on 127.0.0.3\) {re.escape(why)}; {left} on \(--elastic\)", err), err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_launcher_ends_all_hosts(job, number):
    body = 'mark(f"parent{rank}", os.getppid()); mark(f"pid{rank}", os.getpid()); time.sleep(100)'
    process = job.start_on_hosts(body)
    pids = job.pids(*(f"{kind}{rank}" for rank in range(4) for kind in ("pid", "parent")))
    os.kill(process.pid, number)
    code, _, err = ended(process)
    assert code == (-9 if number == signal.SIGKILL else 128 + number), err
    wait_until(lambda: not any(map(alive, pids)), "all processes to end")


def test_a_host_that_cannot_be_reached_is_named(job):
    process = job.start("--elastic", "--hosts", "nowhere", "--remote-shell", "sh -c 'echo no way >&2; exit 255' x", "--",
                        job.script(""))  # fmt: skip
    code, _, err = ended(process)
    assert code == 2
    assert "tarantella: nowhere: no way (`sh -c 'echo no way >&2; exit 255' x nowhere true` must work" in err, err


def test_processes_without_a_launcher_end_by_themselves(job):
    """The launcher is stopped, as if the network had broken: nothing comes."""
    body = 'mark(f"pid{rank}", os.getpid()); mark("launcher", os.getppid()); time.sleep(100)'
    process = job.start_on_hosts(body, "--timeout", "2")
    pids = job.pids(*(f"pid{rank}" for rank in range(4)))
    (launcher,) = {int(one) for one in os.popen(f"pgrep -P {process.pid}").read().split()}
    os.kill(launcher, signal.SIGSTOP)
    wait_until(lambda: not any(map(alive, pids)), "the ranks to end")
    os.kill(launcher, signal.SIGCONT)
    code, _, err = ended(process)
    assert code == 137, err


def test_frames_arrive_whole_however_they_are_cut():
    (read, write), (back, other) = os.pipe(), os.pipe()
    taken: list[tuple[Kind, int, bytes]] = []
    link = Link(read, other, lambda *frame: taken.append(frame), skips=True)
    sender = Link(back, write, lambda *_: None)
    sender.send_raw(b"a greeting\n" + MAGIC[:5])
    assert not link.wait(lambda: bool(taken), 0.05)
    sender.send_raw(MAGIC)
    sent = [(Kind.OUTPUT, 7, b"x" * 100_000), (Kind.BEAT, 0, b""), (Kind.NOTICE, -1, b"1")]
    for frame in sent:
        sender.send(*frame)
    for _ in range(100):
        sender.wait(lambda: False, 0.001)
        link.wait(lambda: len(taken) == 3, 0.001)
    assert taken == sent
    sender.close()
    assert not link.wait(lambda: len(taken) == 4, 5)
    assert link.is_broken
    link.close()


def test_a_notice_of_an_exit_reaches_rank_0_over_tcp():
    with socket.create_server(("127.0.0.1", 0)) as rank_0:
        notices = ExitNotices(Rendezvous(f"tcp://127.0.0.1:{rank_0.getsockname()[1]}", "secret"))
        notices.add(2, 1, now=0)
        notices.deliver(1)
        assert notices.next_try() is None
        connection, _ = rank_0.accept()
        with connection:
            assert connection.recv(100) == b"tarantella 1 secret exit 2 1\n"


def test_one_rank_that_is_left_needs_no_transport(job):
    """As the last one of a job whose transport was chosen."""
    body = "import tarantella as tnt; print(tnt.get_size(), tnt.all_gather(3.0))"
    options = ("--remote-shell", job.folder / "shell", "-x", "TNT_TRANSPORT=tcp")
    code, out, err = ended(job.start("--elastic", "--hosts", HOSTS[0], *options, "--", job.script(body)))
    assert (code, out) == (0, "1 [3.]\n"), err
