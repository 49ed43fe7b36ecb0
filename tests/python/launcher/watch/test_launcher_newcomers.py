"""Which slots ranks take that start beside a running job: those of lost ranks, and those that were added to the hostfile."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from tarantella.launcher.command_line.hosts import Host, Slot, assign_ranks, read_hostfile
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.watch import hostfile
from tarantella.launcher.watch.newcomers import Newcomers


class Console:
    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


class Hosts:
    """Those of a job: all are ready but for the slow ones."""

    def __init__(self) -> None:
        self.slow: set[str] = set()
        self.lost: list[str] = []

    def is_ready(self, host: Host) -> bool:
        return host.name not in self.slow

    def newly_lost(self) -> list[str]:
        lost, self.lost = self.lost, []
        return lost


class Job:
    """A launcher without processes."""

    def __init__(self, file: Path, ranks: int, replacements: int = 0, most: int = 0, here: bool = False) -> None:
        self.file, self.console, self.hosts = file, Console(), Hosts()
        given = read_hostfile(str(file))
        options = Options(
            ranks=ranks, command=("x",), variables={}, output_on_all_devices=False, log_on_all_devices=False, dry_run=False,
            hosts=() if here else assign_ranks(given, ranks), all_hosts=given, hostfile=str(file), elastic=True,
            replacements=replacements, max_ranks=most,
        )  # fmt: skip
        self.newcomers = Newcomers(options, self.console, None if here else self.hosts)  # type: ignore[arg-type]
        self.running = list(range(ranks))
        self.started = ranks

    def start(self) -> list[Slot]:
        """The slots of the ranks that start now."""
        found = []
        for _ in range(2):  # a version counts when it was seen twice
            while self.newcomers.place(self.started, self.running):
                found.append(self.newcomers.slot_of(self.started))
                self.running.append(self.started)
                self.started += 1
        return found

    def lose(self, *numbers: int) -> None:
        for number in numbers:
            self.running.remove(number)
            self.newcomers.lost(number)

    def change(self, text: str) -> list[Slot]:
        self.file.write_text(text)
        return self.start()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hostfile, "LOOKS_EVERY", 0.0)
    path = tmp_path / "hosts"
    path.write_text("a:2\nb:1\n")
    return path


def test_a_rank_takes_the_slot_of_a_lost_one(file):
    job = Job(file, 3, replacements=2)
    assert job.start() == []
    job.lose(1)
    assert job.start() == [Slot("a", 1)]
    job.lose(3, 0)
    assert job.start() == [Slot("a", 1)]  # no more than two


def test_ranks_that_are_lost_with_their_host_go_to_free_slots_of_others(file):
    file.write_text("a:2\nb:2\nc:1\n")
    job = Job(file, 3, replacements=9)
    job.lose(0, 1)
    job.hosts.lost.append("a")
    assert job.start() == [Slot("b", 1), Slot("c", 0)]
    job.lose(2)
    job.hosts.lost.append("b")
    assert job.start() == []  # none is free


def test_a_lost_host_is_used_again_when_a_later_version_names_it(file):
    job = Job(file, 3, replacements=9)
    job.lose(0, 1)
    job.hosts.lost.append("a")
    assert job.start() == []
    assert job.change("b:1\n") == []
    assert job.change("b:1\na:2\n") == [Slot("a", 0), Slot("a", 1)]
    job.lose(3)
    job.hosts.lost.append("a")
    assert job.change("a:2\nb:1\n# it is back\n") == [Slot("a", 0)]


def test_ranks_start_in_added_slots_up_to_the_most(file):
    job = Job(file, 3, most=5)
    assert job.start() == []
    assert job.change("a:3\nb:1\nc:4\n") == [Slot("a", 2), Slot("c", 0)]
    job.lose(0)
    assert job.start() == [Slot("c", 1)]  # a slot that was added, not that of the lost rank
    assert job.change("a:3\nb:1\nc:9\n") == []


def test_slots_that_were_free_at_the_start_are_spare(file):
    job = Job(file, 1, replacements=1, most=3)
    assert job.start() == []
    assert job.change("a:2\nb:2\n") == [Slot("b", 1)]


def test_nobody_starts_in_added_slots_unless_the_job_may_grow(file):
    job = Job(file, 3, replacements=1)
    assert job.change("a:2\nb:1\nc:4\n") == []
    job.lose(2)
    assert job.start() == [Slot("b", 0)]


def test_slots_that_were_taken_away_are_not_used_again_and_their_ranks_stay(file):
    job = Job(file, 3, replacements=9, most=9)
    assert job.change("b:1\n") == []
    assert job.change("a:2\nb:1\n") == []  # the ranks of before are still there
    assert job.change("a:1\nb:1\n") == []
    job.lose(1)
    assert job.start() == []
    assert job.change("a:1\nb:2\n") == [Slot("b", 1)]


def test_nobody_waits_for_a_host_that_is_not_ready(file):
    job = Job(file, 3, most=9)
    job.hosts.slow.add("c")
    assert job.change("a:2\nb:1\nc:1\nd:1\n") == [Slot("d", 0)]
    job.hosts.slow.clear()
    assert job.start() == [Slot("c", 0)]


def test_a_wrong_version_is_told_once_and_changes_nothing(file):
    job = Job(file, 3, replacements=9, most=9)
    for text, reason in {
        "a:2\nb:1 slots=2\n": f"{file}:2: 'b' is given its number of ranks twice",
        "a:2\nlocalhost:3\n": "--elastic: ranks on other hosts cannot find 'localhost': give this host the name that they know",
    }.items():
        assert job.change(text) == job.start() == []
        assert job.console.said.pop() == f"{reason}; the job goes on with the slots that it had (--elastic)"
        assert not job.console.said
    job.lose(2)
    assert job.start() == [Slot("b", 0)]


def test_a_job_on_this_machine_grows_here_alone(file):
    file.write_text("localhost:2\n")
    job = Job(file, 2, most=4, here=True)
    assert job.change("localhost:2\nb:3\n") == []
    (said,) = job.console.said
    assert said.startswith(f"--hostfile: '{file}' names 'b', but this job began on this machine alone"), said
    assert job.change("localhost:2\n127.0.0.1\n") == [Slot("", 2)]


WAITING = 'mark("start" + os.environ["TNT_INTERNAL_ELASTIC"], os.getppid()); wait_for("go")'
"""The script of a rank that never joins."""


def ended(process, go: Path) -> str:
    go.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err


def test_a_launcher_on_this_machine_starts_a_rank_in_an_added_slot(here):
    (here.folder / "hosts").write_text("localhost\n")
    options = ("-n", 1, "--elastic", "--max-ranks", 3, "--hostfile", "hosts")
    process = here.start(*options, "--", here.script(WAITING))
    here.read("start0")
    (here.folder / "hosts").write_text("localhost slots=two\n")
    said = ""
    while "goes on" not in said:  # before the next version is there
        said = process.stderr.readline()
    assert said == (
        "tarantella: hosts:1: unexpected 'slots=two': write a host as `name`, `name slots=2` or `name:2`; the job goes on with "
        "the slots that it had (--elastic)\n"
    )
    (here.folder / "hosts").write_text("localhost slots=2\n")
    here.read("start1")
    err = ended(process, here.folder / "go")
    assert re.search(r"rank 1 \(pid \d+\) starts in a slot that was added \(--max-ranks\)", err), err
    assert "slots=two" not in err, err


@pytest.fixture
def on_hosts(here):
    """Starts the launcher on hosts that are addresses of this machine."""
    shell = here.folder / "shell"
    shell.write_text('#!/bin/sh\nif [ "$1" = 127.0.0.9 ]; then echo no way >&2; exit 255; fi\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)

    def start(ranks: int, *options: object):
        own = ("-n", ranks, "--elastic", "--remote-shell", shell, "--hostfile", "hosts")
        return here.start(*own, *options, "--", here.script(WAITING))

    return start


def test_a_rank_starts_on_a_host_that_was_added_and_not_on_one_without_answer(here, on_hosts):
    (here.folder / "hosts").write_text("127.0.0.2\n")
    process = on_hosts(1, "--max-ranks", 3)
    here.read("start0")
    (here.folder / "hosts").write_text("127.0.0.2\n127.0.0.9\n127.0.0.3\n")
    here.read("start1")
    err = ended(process, here.folder / "go")
    assert re.search(r"rank 1 \(pid \d+ on 127.0.0.3\) starts in a slot that was added", err), err
    why = "tarantella: 127.0.0.9 takes no ranks: the connection to it has ended (`"
    assert err.count(why) == 1, err


def test_a_job_that_began_on_this_machine_grows_onto_others_by_a_remote_shell(here, on_hosts):
    own = socket.gethostname()
    (here.folder / "hosts").write_text(f"{own}\n")
    process = on_hosts(1, "--max-ranks", 2)
    here.read("start0")
    (here.folder / "hosts").write_text(f"{own}\n127.0.0.3\n")
    here.read("start1")
    err = ended(process, here.folder / "go")
    assert f"1 rank on 1 host ({own}: 1), started by {here.folder / 'shell'}" in err, err
    assert re.search(r"rank 1 \(pid \d+ on 127.0.0.3\) starts in a slot that was added", err), err


def test_ranks_of_a_lost_host_start_on_another_and_on_that_host_when_it_is_back(here, on_hosts):
    (here.folder / "hosts").write_text("127.0.0.2\n127.0.0.3:2\n127.0.0.4\n")
    process = on_hosts(3, "--replacements", 2)
    (agent,) = here.pids("start2")
    here.pids("start0", "start1")
    os.kill(agent, signal.SIGKILL)
    (here_now,) = here.pids("start3")
    assert here_now != agent
    assert not (here.folder / "start4").exists()  # no slot is free for a second one
    (here.folder / "hosts").write_text("127.0.0.2\n127.0.0.3:2\n127.0.0.4\n# node 3 is back\n")
    here.read("start4")
    err = ended(process, here.folder / "go")
    places = re.findall(r"rank (\d) \(pid \d+ on ([0-9.]+)\) starts in place of one that was lost", err)
    assert places == [("3", "127.0.0.4"), ("4", "127.0.0.3")], err
