"""Ctrl-C and its kin, and the launcher's own death: nothing is left."""

from __future__ import annotations

import signal
import time
from textwrap import dedent

import pytest

STUBBORN = """
    for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
    mark(f"pid{rank}", os.getpid())
    while True: time.sleep(1)
    """
POLITE = """
    def end(number, _): mark(f"got{rank}", number); sys.exit(0)
    for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, end)
    mark(f"pid{rank}", os.getpid())
    while True: time.sleep(1)
    """


@pytest.mark.parametrize(
    ("sent", "received"),
    [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGTERM)],
)
def test_signals_are_passed_on(here, gone, sent, received):
    launcher = here.start("-n", 2, "--", here.script(POLITE))
    pids = here.pids("pid0", "pid1")
    launcher.send_signal(sent)
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 128 + sent
    gone(pids)
    assert here.read("got0") == here.read("got1") == str(int(received))
    time_left = ", which have 30 s for it (--grace)" if received == signal.SIGTERM else ""
    assert err.splitlines()[1:] == [f"tarantella: interrupted; ending 2 ranks{time_left}"]


SAVING = """
    worker = os.fork()
    if worker == 0:  # has no handler, and is needed to save
        while True: time.sleep(1)
    def save(number, _):
        time.sleep(2.5); os.kill(worker, 0); state = Path(f"/proc/{worker}/stat").read_text()
        mark(f"saved{rank}", state.rpartition(")")[2].split()[0] not in "ZX"); sys.exit(0)
    if rank: signal.signal(signal.SIGTERM, save)
    mark(f"pid{rank}", os.getpid()); mark(f"worker{rank}", worker)
    while True: time.sleep(1)
    """


@pytest.mark.parametrize(("options", "saves"), [([], True), (["--grace", 1], False)])
def test_ranks_that_handle_sigterm_have_time_to_save(here, gone, options, saves):
    launcher = here.start("-n", 2, *options, "--", here.script(SAVING))
    pids = here.pids("pid0", "pid1", "worker0", "worker1")
    sent = time.monotonic()
    launcher.send_signal(signal.SIGTERM)
    gone([pids[0], pids[2]], within=2)  # one without a handler ends at once, with all that it has started
    assert launcher.wait(timeout=20) == 128 + signal.SIGTERM
    gone(pids)
    assert (time.monotonic() - sent > 2.4) == saves
    assert (here.folder / "saved1").exists() == saves
    assert not saves or here.read("saved1") == "True"


def test_who_ignores_a_ctrl_c_is_killed_in_time(here, gone):
    launcher = here.start("-n", 2, "--", here.script(STUBBORN))
    pids = here.pids("pid0", "pid1")
    sent = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=20) == 130
    assert 1.4 < time.monotonic() - sent < 10
    gone(pids)


def test_a_second_ctrl_c_kills_at_once(here, gone):
    launcher = here.start("-n", 2, "--", here.script(STUBBORN))
    pids = here.pids("pid0", "pid1")
    sent = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    assert launcher.stderr is not None
    while "interrupted" not in launcher.stderr.readline():
        pass
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=20) == 130
    assert time.monotonic() - sent < 1
    gone(pids)


def test_an_ignored_hangup_stays_ignored(here):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does

    body = "mark('pid', os.getpid()); wait_for('go'); mark('done')"
    launcher = here.start("-n", 1, "--", here.script(body), preexec_fn=ignore)
    here.pids("pid")
    launcher.send_signal(signal.SIGHUP)
    time.sleep(0.1)
    (here.folder / "go").touch()
    assert launcher.wait(timeout=20) == 0
    assert here.read("done") == ""


def test_a_ctrl_c_while_a_failed_job_ends_kills_at_once(here, gone):
    failing = "if rank: wait_for('pid0'); mark('pid1', os.getpid()); sys.exit(3)\n"
    body = failing + dedent(STUBBORN)
    launcher = here.start("-n", 2, "--", here.script(body))
    pids = here.pids("pid0")
    gone(here.pids("pid1"), within=5)
    time.sleep(0.1)  # the launcher has seen it, too
    sent = time.monotonic()
    launcher.send_signal(signal.SIGINT)
    _, err = launcher.communicate(timeout=20)
    assert launcher.returncode == 3
    assert time.monotonic() - sent < 1
    assert "exited with code 3" in err
    gone(pids)


def test_ranks_die_with_the_launcher(here, gone):
    launcher = here.start("-n", 3, "--", here.script(STUBBORN))
    pids = here.pids("pid0", "pid1", "pid2")
    launcher.kill()
    launcher.wait(timeout=20)
    gone(pids, within=10)
