"""What a launcher keeps of the ranks that it has started."""

from __future__ import annotations

import selectors
from types import SimpleNamespace

from tarantella.launcher.show.job_view import JobView


class Memory:
    """Of a rank's flight record."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_the_records_of_ranks_that_others_have_replaced_are_given_back():
    with selectors.DefaultSelector() as selector:
        view = JobView(SimpleNamespace(ranks=2), "job", None, selector)
        memories = [Memory() for _ in range(6)]
        for number, memory in enumerate(memories):
            if number >= 2:
                view.ended(number - 2, "was killed by SIGKILL")
            view.started(number, 1000 + number, memory)
    assert [memory.is_open for memory in memories] == [False, False, True, True, True, True]
