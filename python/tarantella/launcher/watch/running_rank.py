"""A rank that runs, and what becomes of its output."""

import os
from collections import deque
from functools import partial

from tarantella.launcher.show.output import STDERR, STDOUT, Console, Stream
from tarantella.launcher.show.shown_output import copy_window_size
from tarantella.launcher.start.process import RankProcess
from tarantella.launcher.start.remote_rank import RemoteRank

TAIL_LINES = 100
LOG_PREFIX = b"tarantella["
"""How the library's log lines begin on every rank."""


class RunningRank:
    """A running rank and its output."""

    def __init__(
        self, number: int, process: RankProcess | RemoteRank, console: Console, show_log: bool, prefix: bool = True
    ) -> None:
        self.number = number
        self.process = process
        self.signalled = False
        self.is_shown = number == 0
        """Whether its output is passed on, if it is passed on as it is."""
        self.tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self.reports: list[bytes] = []
        self.prefix = f"[rank {number}] ".encode() * prefix
        pipes = process.pipes

        def show(descriptor: int, line: bytes) -> None:
            console.write(descriptor, self.prefix + line + b"\n")

        def pass_on(descriptor: int, source: int, data: bytes) -> None:
            if not self.is_shown:
                self.tail.extend(data.splitlines() if descriptor == STDERR else ())
                return
            if os.isatty(source):
                copy_window_size(source, descriptor)
            console.write(descriptor, data)

        def keep(line: bytes) -> None:
            if show_log and line.startswith(LOG_PREFIX):  # says its rank by itself
                console.write(STDERR, line + b"\n")
            else:
                self.tail.append(line)

        self.streams = [Stream(pipes.report, self.reports.append)]
        if pipes.as_is:
            for descriptor, pipe in ((STDOUT, pipes.stdout), (STDERR, pipes.stderr)):
                if pipe is not None:
                    self.streams.append(Stream(pipe, partial(pass_on, descriptor, pipe), pausable=True, as_is=True))
            return
        if pipes.stdout is not None:
            self.streams.append(Stream(pipes.stdout, partial(show, STDOUT), pausable=True))
        if pipes.stderr is not None and pipes.stdout is not None:
            self.streams.append(Stream(pipes.stderr, partial(show, STDERR), pausable=True))
        elif pipes.stderr is not None:
            self.streams.append(Stream(pipes.stderr, keep, pausable=show_log))
