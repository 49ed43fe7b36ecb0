"""The launcher forms the next generation of an elastic job, of the ranks that are left and of newcomers."""

from __future__ import annotations

import json
import selectors
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tarantella import variables
from tarantella.environment import REFUSED, Message, elastic_address
from tarantella.launcher.base import mark
from tarantella.launcher.start.environment import Rendezvous
from tarantella.launcher.watch.generations import MOST_IN_VAIN, Generations


class Process:
    """That of a rank, which is not stopped."""

    def __init__(self) -> None:
        self.signals: list[int] = []

    def is_stopped(self) -> bool:
        return False

    def signal(self, number: int, alone: bool = False) -> None:
        self.signals.append(number)


class Job:
    """A launcher without processes: ranks are what connects to it."""

    def __init__(self, members: list[int], patience: float = 60) -> None:
        self.members = members
        self.running = {number: Process() for number in members}
        self.formed: list[list[int]] = []
        self.connections: list[socket.socket] = []
        self.selector = selectors.DefaultSelector()
        self.generations = Generations(lambda: self.running, lambda: self.members, self.form, patience, self.selector)

    def close(self) -> None:
        self.generations.close()
        self.selector.close()
        for connection in self.connections:
            connection.close()

    def form(self, members: list[int]) -> list[dict[str, str]]:
        self.members = members
        self.formed.append(members)
        return Rendezvous.random().places([""] * len(members))

    def say(self, text: str) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(elastic_address(mark.own_mark()))
        connection.sendall(f"{text}\n".encode())
        self.connections.append(connection)
        self.serve()
        return connection

    def serve(self) -> None:
        while events := self.selector.select(0.02):
            for key, _ in events:
                key.data()

    def lose(self, number: int) -> None:
        del self.running[number]
        self.generations.review()


def answer(connection: socket.socket) -> Any:
    """Empty if there is none."""
    connection.settimeout(5)
    try:
        return connection.recv(4096).decode()
    except ConnectionResetError:
        return ""


def place(connection: socket.socket) -> tuple[str, str]:
    found = json.loads(answer(connection))
    return found[variables.RANK], found[variables.SIZE]


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job([0, 1, 2])
    yield made
    made.close()


def test_those_that_run_get_their_places_when_all_have_asked(job):
    first = job.say(f"2 {Message.JOIN} ")
    job.lose(0)
    assert not job.formed
    second = job.say(f"1 {Message.JOIN} ")
    assert job.formed == [[1, 2]]
    assert place(second) == ("0", "2")
    assert place(first) == ("1", "2")


def test_the_last_one_to_end_completes_them(job):
    asking = [job.say(f"{number} {Message.JOIN} ") for number in (0, 1)]
    job.lose(2)
    assert [place(one) for one in asking] == [("0", "2"), ("1", "2")]


def test_a_newcomer_hears_from_the_master_and_joins_where_it_lets_it_in(job):
    job.lose(2)
    job.running[3] = Process()
    asking = job.say(f"3 {Message.WHERE} ")
    master = job.say(f"0 {Message.LISTEN} ")
    assert answer(master) == f"{Message.WHERE}\n"
    master.sendall(f"0 {Message.WHERE} 4 7 1\n".encode())
    job.serve()
    assert answer(asking) == "4 7 1"
    ready = job.say(f"3 {Message.READY} ")
    assert answer(master) == f"{Message.READY}\n"
    ranks = [job.say(f"0 {Message.JOIN} 4 9 1"), job.say(f"1 {Message.JOIN} ")]
    assert answer(ready) == "4 9 1"
    assert not job.formed  # they wait for it
    ranks.append(job.say(f"3 {Message.JOIN} "))
    assert job.formed == [[0, 1, 3]]
    assert [place(one) for one in ranks] == [("0", "3"), ("1", "3"), ("2", "3")]


def test_the_master_is_asked_once_by_several(job):
    master = job.say(f"0 {Message.LISTEN} ")
    for number in (3, 4):
        job.running[number] = Process()
        job.say(f"{number} {Message.READY} ")
    assert answer(master) == f"{Message.READY}\n"


def test_a_newcomer_that_is_not_let_in_goes_on_alone(job):
    job.running[3] = Process()
    assert answer(job.say(f"3 {Message.JOIN} ")) == "{}"
    job.say(f"3 {Message.READY} ")
    job.say(f"0 {Message.JOIN} 0 5 1")
    waiting = job.say(f"3 {Message.JOIN} ")
    job.lose(0)  # the one that has let it in
    ranks = [job.say(f"{number} {Message.JOIN} ") for number in (1, 2)]
    assert job.formed == [[1, 2]]
    assert answer(waiting) == "{}"
    assert [place(one) for one in ranks] == [("0", "2"), ("1", "2")]


def test_nobody_waits_for_a_newcomer_that_has_gone(job):
    job.running[3] = Process()
    job.say(f"3 {Message.READY} ")
    ranks = [job.say(f"0 {Message.JOIN} 0 5 1"), *(job.say(f"{number} {Message.JOIN} ") for number in (1, 2))]
    assert not job.formed
    job.lose(3)
    assert [place(one)[1] for one in ranks] == ["3", "3", "3"]


def test_ranks_that_lose_one_another_again_and_again_hear_of_no_more(job):
    for _ in range(1 + MOST_IN_VAIN):
        ranks = [job.say(f"{number} {Message.JOIN} ") for number in job.members]
        assert [place(one)[1] for one in ranks] == ["3", "3", "3"]
    ranks = [job.say(f"{number} {Message.JOIN} ") for number in job.members]
    assert [answer(one) for one in ranks] == ["", "", ""]


def test_a_loss_in_between_is_no_vain_generation(job):
    for lost in (2, 1):
        for _ in range(MOST_IN_VAIN):
            ranks = [job.say(f"{number} {Message.JOIN} ") for number in job.members]
            assert all(place(one) for one in ranks)
        asking = [job.say(f"{number} {Message.JOIN} ") for number in range(lost)]
        job.lose(lost)
        assert [place(one)[1] for one in asking] == [str(lost)] * lost


def test_nobody_joins_without_a_rank_whose_script_has_ended_before(job):
    first = job.say(f"2 {Message.JOIN} ")
    job.generations.exited(0, 0)
    job.lose(0)
    second = job.say(f"1 {Message.JOIN} ")
    for one in (first, second):
        assert json.loads(answer(one)) == {REFUSED: "rank 0 exited with code 0 before the ranks had joined"}
    assert not job.formed


def test_one_whose_script_ends_later_is_not_needed(job):
    ranks = [job.say(f"{number} {Message.JOIN} ") for number in job.members]
    assert all(place(one) for one in ranks)
    job.generations.exited(0, 0)
    ranks = [job.say(f"{number} {Message.JOIN} ") for number in (1, 2)]
    job.lose(0)
    assert [place(one)[1] for one in ranks] == ["2", "2"]


def test_one_that_refuses_is_known(job):
    job.say(f"3 {Message.REFUSE} ")
    assert job.generations.has_refused(3)
    assert not job.generations.has_refused(1)


def test_one_that_does_not_ask_in_time_is_killed():
    job = Job([0, 1], patience=0)
    job.say(f"0 {Message.JOIN} ")
    job.generations.review()
    assert set(job.running[1].signals) == {signal.SIGKILL}
    assert not job.running[0].signals
    job.close()


def test_there_are_no_more_when_the_job_has_failed(job):
    asking = job.say(f"0 {Message.JOIN} ")
    job.generations.end()
    assert answer(asking) == ""
    assert answer(job.say(f"1 {Message.JOIN} ")) == ""
