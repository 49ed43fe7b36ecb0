"""A job: N ranks that start together, are watched by one loop in one thread, and end together."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tarantella.launcher.environment import Meeting
from tarantella.launcher.forked import ForkedRank
from tarantella.launcher.options import Options
from tarantella.launcher.output import STDERR, STDOUT, Console, Stream
from tarantella.launcher.preload import preloaded
from tarantella.launcher.process import Outcome, RankProcess, Starter
from tarantella.launcher.rendezvous import ExitNotices, Refusal
from tarantella.launcher.signals import SignalPipe
from tarantella.launcher.text import counted
from tarantella.launcher.verdict import Ended, Ending, culprit, read_report

CANNOT_START = 126
TAIL_LINES = 100
LOG_PREFIX = b"tarantella["
"""How the library's log lines begin, on whatever rank."""
GRACE = 1.0
"""Seconds in which ranks may end on their own: they notice a loss, and a Ctrl-C, themselves."""
TERM_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""
SAFETY_NET = 1.0
"""The longest sleep, should a SIGCHLD ever get lost."""


class _Rank:
    """A running rank, and what the launcher keeps of it."""

    def __init__(self, number: int, process: RankProcess, console: Console, show_log: bool) -> None:
        self.number = number
        self.process = process
        self.told_to_end = False
        self.tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self.reports: list[bytes] = []
        self.prefix = f"[rank {number}] ".encode()
        pipes = process.pipes

        def show(descriptor: int, line: bytes) -> None:
            console.write(descriptor, self.prefix + line + b"\n")

        def keep(line: bytes) -> None:
            if show_log and line.startswith(LOG_PREFIX):  # says its rank by itself
                console.write(STDERR, line + b"\n")
            else:
                self.tail.append(line)

        self.streams = [Stream(pipes.report, self.reports.append)]
        if pipes.stdout is not None:
            self.streams.append(Stream(pipes.stdout, partial(show, STDOUT), pausable=True))
        if pipes.stderr is not None and pipes.stdout is not None:
            self.streams.append(Stream(pipes.stderr, partial(show, STDERR), pausable=True))
        elif pipes.stderr is not None:
            self.streams.append(Stream(pipes.stderr, keep, pausable=show_log))


class Job:
    """Starts the ranks, and stays until the last has ended."""

    def __init__(
        self,
        options: Options,
        environment: Callable[[int, str], Mapping[str, str]],
        meeting: Meeting,
        console: Console,
        *,
        only: int | None = None,
        passed_on: Sequence[int] = (),
        prepare: Callable[[int], Callable[[], None]] | None = None,
    ) -> None:
        """environment: what to set for a rank, given its number and its report descriptor.

        only: the one rank of a larger job that is started here, by mpirun. It then speaks of its own failures alone, and
        ends when whoever started this process has gone.
        passed_on: descriptors that the ranks get and this process gives up.
        prepare: gives for a rank what its process does first, between fork and exec.
        """
        self._options = options
        self._environment = environment
        self._only = only
        self._passed_on = passed_on
        self._prepare = prepare
        self._parent = os.getppid()
        self._meeting = meeting
        self._console = console
        self._selector = selectors.PollSelector()  # epoll refuses files, and output may go to one
        self._running: dict[int, _Rank] = {}
        self._endings: list[Ending] = []
        self._tails: dict[int, list[bytes]] = {}
        self._steps: deque[tuple[float, signal.Signals]] = deque()
        self._notices = ExitNotices(meeting)
        self._refusal: Refusal | None = None
        self._paused: list[Stream] = []
        self._interrupted = 0
        self._asked_to_end = False
        self._failed_among = 0
        self._check_children = False

    def run(self) -> Ended:
        """Returns how it ended."""
        with self._selector, SignalPipe() as signals:
            self._selector.register(
                signals.descriptor, selectors.EVENT_READ, lambda: self._on_signals(signals.read())
            )
            try:
                started = self._start()
                while started and self._running:
                    self._turn()
            finally:
                self._kill_all()
            if self._refusal:
                self._refusal.close()
        ended = self._conclude() if started else Ended(CANNOT_START, started=False)
        self._console.drain()  # signals do again what they did: nothing holds up a Ctrl-C here
        return ended

    def _start(self) -> bool:
        size = self._options.ranks
        starter = Starter(
            size,
            self._options.command,
            self._options.output_on_all_devices,
            self._passed_on,
            self._prepare,
            preloaded() if self._options.preload else None,
        )
        for number in range(size) if self._only is None else [self._only]:
            try:
                process = starter.start(number, partial(self._environment, number))
            except ForkedRank:  # this process: the ranks before it are none of its own
                self._running.clear()
                raise
            except (OSError, subprocess.SubprocessError) as error:
                self._console.say(f"cannot start rank {number}: {self._options.command[0]!r}: {error}")
                return False
            rank = _Rank(number, process, self._console, self._options.log_on_all_devices)
            self._running[number] = rank
            for stream in rank.streams:
                self._watch(stream)
        for descriptor in self._passed_on:
            os.close(descriptor)
        return True

    def _kill_all(self) -> None:
        """Leaves no rank behind when starting them, or the launcher itself, has failed."""
        for rank in self._running.values():
            rank.process.signal(signal.SIGKILL)
        for rank in self._running.values():
            while rank.process.ended() is None:
                time.sleep(0.001)
            for stream in rank.streams:
                os.close(stream.descriptor)
        self._running.clear()

    def _turn(self) -> None:
        """Waits for something to happen, and does all that is due."""
        self._console.watch(self._selector)
        self._pause_or_resume()
        events = self._selector.select(self._sleep())
        for key, _ in events:
            callback: Callable[[], None] = key.data
            callback()
        if self._check_children or not events:
            self._check_children = False
            self._collect()
        if self._only is not None and os.getppid() != self._parent and not self._ending():
            self._interrupt(signal.SIGTERM)
        now = time.monotonic()
        while self._steps and self._steps[0][0] <= now:
            self._tell_all(self._steps.popleft()[1])
        self._notices.deliver(now)

    def _sleep(self) -> float:
        due = [self._steps[0][0] if self._steps else None, self._notices.next_try()]
        now = time.monotonic()
        return max(0.0, min([SAFETY_NET, *(at - now for at in due if at is not None)]))

    def _watch(self, stream: Stream) -> None:
        def read() -> None:
            if stream.read() == 0:  # closed by the rank, which need not have ended
                self._selector.unregister(stream.descriptor)

        self._selector.register(stream.descriptor, selectors.EVENT_READ, read)

    def _on_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                self._check_children = True
                continue
            self._asked_to_end = True
            if not self._ending():
                self._interrupt(number)
            elif number == signal.SIGINT:  # asked again: no more patience
                self._steps.clear()
                self._tell_all(signal.SIGKILL)

    def _ending(self) -> bool:
        return bool(self._interrupted or self._failed_among)

    def _interrupt(self, number: int) -> None:
        self._interrupted = number
        if self._only is None:
            self._console.say(f"interrupted; ending {counted(len(self._running), 'rank')}")
        self._tell_all(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        self._end_soon()

    def _end_soon(self) -> None:
        now = time.monotonic()
        self._steps.extend([(now + GRACE, signal.SIGTERM), (now + GRACE + TERM_GRACE, signal.SIGKILL)])

    def _tell_all(self, number: signal.Signals) -> None:
        for rank in self._running.values():
            rank.told_to_end = True
            rank.process.signal(number)

    def _collect(self) -> None:
        """Finds the ranks that have ended."""
        for rank in list(self._running.values()):
            outcome = rank.process.ended()
            if outcome is not None:
                self._on_end(rank, outcome)

    def _on_end(self, rank: _Rank, outcome: Outcome) -> None:
        for stream in rank.streams:
            if stream.descriptor in self._selector.get_map():
                self._selector.unregister(stream.descriptor)
            if stream in self._paused:
                self._paused.remove(stream)
            stream.finish()
        del self._running[rank.number]
        report = read_report(rank.reports)
        host = "" if self._only is None else socket.gethostname()
        self._endings.append(Ending(rank.number, rank.process.pid, outcome, rank.told_to_end, report, host))
        self._tails[rank.number] = [rank.prefix + line for line in rank.tail]
        if rank.number == 0:
            self._notices.clear()
        if not outcome.good:
            if not self._ending():
                self._failed_among = len(self._running) + 1
                self._end_soon()
        elif rank.number == 0 and self._running:
            self._refusal = Refusal(self._meeting, self._selector)
        if rank.number != 0 and 0 in self._running:
            self._notices.add(rank.number, outcome.exit_code, time.monotonic())

    def _conclude(self) -> Ended:
        """Says how the job ended, if not well."""
        if self._interrupted:
            return Ended(128 + self._interrupted, interrupted=True)
        failed = culprit(self._endings)
        if failed is None:
            return Ended(0)
        lost = frozenset(ending.rank for ending in self._endings if ending.killed)
        ended = Ended(failed.exit_code, str(failed), self._asked_to_end, lost=lost)
        if self._only is not None and not failed.failed_by_itself:
            return ended
        for line in self._tails[failed.rank]:
            self._console.write(STDERR, line + b"\n")
        others = "" if failed.report and failed.report.message else self._others()
        self._console.say(f"{failed}{others}")
        return ended

    def _others(self) -> str:
        others = self._failed_among - 1  # those still running when the first one failed
        if others == 0:
            return ""
        if others == self._options.ranks - 1:
            return "; the other rank was ended" if others == 1 else f"; the other {others} ranks were ended"
        return f"; {counted(others, 'rank')} still running {'was' if others == 1 else 'were'} ended"

    def _pause_or_resume(self) -> None:
        """Reads no more output while too much is queued; the ranks then wait in their writes."""
        if self._console.full and not self._paused:
            streams = [stream for rank in self._running.values() for stream in rank.streams]
            watched = self._selector.get_map()
            self._paused = [one for one in streams if one.pausable and one.descriptor in watched]
            for stream in self._paused:
                self._selector.unregister(stream.descriptor)
        elif self._paused and not self._console.full:
            for stream in self._paused:
                self._watch(stream)
            self._paused = []
