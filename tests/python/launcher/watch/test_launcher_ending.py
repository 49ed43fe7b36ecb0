"""How a job ends when a rank fails: which rank is named, with which code, and that nothing is left."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest

from tarantella.launcher.start.process import ExitStatus
from tarantella.launcher.start.results import RankExit, Report, first_failure, read_report


def last_line(result) -> str:
    """The launcher's last line, process numbers left out."""
    return re.sub(r"pid \d+", "pid N", result.stderr.splitlines()[-1])


def test_all_well(here):
    result = here.ranks(3, "mark(f'done{rank}')")
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) == 1
    assert [here.read(f"done{rank}") for rank in range(3)] == [""] * 3


def test_the_exit_code_is_passed_on_and_its_rank_named(here):
    result = here.ranks(4, "sys.exit(7) if rank == 2 else time.sleep(30)")
    assert result.returncode == 7
    assert last_line(result) == "tarantella: rank 2 (pid N) exited with code 7; the other 3 ranks were ended"


def test_the_pid_is_the_ranks(here):
    result = here.ranks(1, "mark('pid', os.getpid()); sys.exit(1)")
    assert f"rank 0 (pid {here.read('pid')}) exited with code 1" in result.stderr


def test_a_killed_rank_is_named(here):
    result = here.ranks(2, "os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(30)")
    assert result.returncode == 137
    assert last_line(result) == "tarantella: rank 1 (pid N) was killed by SIGKILL; the other rank was ended"


def test_the_others_may_end_on_their_own(here):
    body = """
        signal.signal(signal.SIGTERM, lambda *_: mark("terminated"))
        if rank == 1: wait_for("ready"); sys.exit(3)
        mark("ready"); time.sleep(0.3); mark("cleaned up"); sys.exit(4)
        """
    result = here.ranks(2, body)
    assert result.returncode == 3
    assert (here.folder / "cleaned up").exists()
    assert not (here.folder / "terminated").exists()


def test_the_others_are_asked_before_they_are_killed(here):
    body = """
        def end(*_): mark("asked"); sys.exit(0)
        if rank == 0:
            signal.signal(signal.SIGTERM, end); mark("ready"); time.sleep(30)
        wait_for("ready"); sys.exit(3)
        """
    assert here.ranks(2, body).returncode == 3
    assert (here.folder / "asked").exists()


def test_the_stubborn_and_their_children_are_gone_within_two_seconds(here, gone):
    body = """
        if rank == 1:
            for name in ("pid0", "child0", "pid2", "child2"): wait_for(name)
            mark("failed", time.monotonic()); sys.exit(3)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = os.fork()
        mark(f"pid{rank}" if child else f"child{rank}", os.getpid())
        while True: time.sleep(1)
        """
    result = here.ranks(3, body)
    ended = time.monotonic()
    assert result.returncode == 3
    gone(here.pids("pid0", "child0", "pid2", "child2"), within=5)
    assert ended - float(here.read("failed")) < 2


def test_children_that_a_rank_leaves_behind_are_ended(here, gone):
    body = """
        child = os.fork()
        if not child: mark("child", os.getpid()); time.sleep(30)
        wait_for("child")
        """
    assert here.ranks(1, body).returncode == 0
    gone(here.pids("child"), within=5)


def test_a_process_that_left_the_session_does_not_hold_up_the_end(here):
    body = """
        if rank == 1 and not os.fork():
            os.setsid(); mark("child", os.getpid()); time.sleep(60)  # with the pipes of its rank open
        wait_for("child")
        """
    started = time.monotonic()
    assert here.ranks(2, body, "--output-on-all-devices").returncode == 0
    assert time.monotonic() - started < 30
    os.kill(here.pids("child")[0], signal.SIGKILL)


def test_a_report_is_printed(here):
    body = """
        if rank == 1: report("primary", "ValueError: two\\nlines"); sys.exit(1)
        time.sleep(30)
        """
    said = last_line(here.ranks(2, body))
    assert said == "tarantella: rank 1 (pid N) exited with code 1: ValueError: two lines"


def test_who_failed_because_of_another_is_not_named(here):
    body = """
        if rank == 2: report("secondary", "rank 1 was lost"); mark("first"); sys.exit(1)
        if rank == 1: wait_for("first"); time.sleep(0.3); report("primary", "KeyError: 'x'"); sys.exit(5)
        time.sleep(30)
        """
    result = here.ranks(3, body)
    assert result.returncode == 5
    assert last_line(result) == "tarantella: rank 1 (pid N) exited with code 5: KeyError: 'x'"


def ending(rank, code=0, signal=0, told=False, kind=None, message=""):
    report = Report(kind == "secondary", message) if kind else None
    return RankExit(rank, 1, ExitStatus(code, signal), told, report)


@pytest.mark.parametrize(
    ("endings", "named", "code", "text"),
    [
        ([ending(0)], None, 0, ""),
        ([ending(0), ending(1, code=3), ending(2, code=4)], 1, 3, "rank 1 (pid 1) exited with code 3"),
        ([ending(2, signal=11), ending(1, code=3)], 2, 139, "rank 2 (pid 1) was killed by SIGSEGV"),
        ([ending(2, signal=40)], 2, 168, "rank 2 (pid 1) was killed by signal 40"),
        # all are secondary: the first
        ([ending(1, code=3, kind="secondary"), ending(0, code=4, kind="secondary")], 1, 3, "rank 1 (pid 1) exited with code 3"),
        # what the launcher has killed is no cause, though it had no time for a report
        ([ending(1, code=3, kind="secondary"), ending(0, signal=9, told=True)], 1, 3, "rank 1 (pid 1) exited with code 3"),
        # but for one that had said that it was, and then took its time
        (
            [ending(1, code=3, kind="secondary"), ending(0, signal=15, told=True, kind="primary", message="E: e")],
            0,
            1,
            "rank 0 (pid 1) failed: E: e",
        ),
    ],
)
def test_the_culprit(endings, named, code, text):
    found = first_failure(endings)
    if named is None:
        assert found is None
    else:
        assert found is not None
        assert (found.rank, found.exit_code, str(found)) == (named, code, text)


@pytest.mark.parametrize(
    ("lines", "report"),
    [
        ([], None),
        ([b"not json", b'"text"', b'{"kind": "other"}'], None),
        ([b"\xff", b'{"kind": "primary", "message": "a"}', b'{"kind": "secondary"}'], Report(False, "a")),
        ([b'{"kind": "secondary"}'], Report(True, "")),
        ([b'{"kind": "secondary", "message": null}'], Report(True, "")),
    ],
)
def test_reports(lines, report):
    assert read_report(lines) == report
