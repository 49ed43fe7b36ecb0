"""What a launcher keeps of the ranks that it has started."""

from __future__ import annotations

import os
import selectors
from types import SimpleNamespace

from tarantella.launcher.command_line.options import Options
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


def test_an_elastic_job_has_as_many_ranks_as_run():
    options = Options(
        ranks=2,
        command=("x",),
        variables={},
        output_on_all_devices=False,
        log_on_all_devices=False,
        dry_run=False,
        elastic=True,
    )
    with selectors.DefaultSelector() as selector:
        view = JobView(options, "job", None, selector)
        for number in range(5):
            view.started(number, os.getpid(), None, "node")
        view.ended(1, "was killed by SIGKILL")
        assert view.describe()["ranks"] == 4
        view.close()
