"""A job: N ranks that start together, are watched by one loop in one thread, and end together."""

import os
import selectors
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from tarantella import settings, variables
from tarantella.installation import page
from tarantella.launcher.base.signals import ASKING, SAVING, SignalPipe
from tarantella.launcher.base.words import counted
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.show.job_view import JobView
from tarantella.launcher.show.output import STDERR, Console, pause_or_resume
from tarantella.launcher.start.environment import Rendezvous
from tarantella.launcher.start.forked import ForkedRank
from tarantella.launcher.start.process import ExitStatus, RankSpec, RankStarter
from tarantella.launcher.start.remote_hosts import RemoteHosts
from tarantella.launcher.start.rendezvous import ExitNotices, Refusal
from tarantella.launcher.start.results import JobResult, RankExit, first_failure, read_report
from tarantella.launcher.watch import newcomers, supervision
from tarantella.launcher.watch.circle_watch import CircleWatch
from tarantella.launcher.watch.generations import Generations
from tarantella.launcher.watch.joining import TRAINED_ALONE, JoinWatch
from tarantella.launcher.watch.newcomers import Newcomers
from tarantella.launcher.watch.running_rank import RunningRank

NOTHING: Mapping[str, str] = {}
CANNOT_START = 126
GRACE = 1.0
"""Seconds in which ranks may end by themselves: they notice a lost rank, and a Ctrl-C."""
TERM_GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL."""
DEFAULT_GRACE = 30.0
"""The same where the script handles SIGTERM, or under Slurm, which leaves as long (KillWait)."""
LONGEST_SLEEP = 1.0
"""Seconds of the longest sleep, in case a SIGCHLD gets lost."""


class Job:
    """Starts the ranks and watches them until the last has ended."""

    def __init__(
        self,
        options: Options,
        spec: RankSpec,
        rendezvous: Rendezvous,
        console: Console,
        *,
        joining: int,
        only: int | None = None,
        hosts: RemoteHosts | None = None,
    ) -> None:
        """joining: how many ranks are expected to join, 0 if that is not known. hosts: which start the ranks, if this does not.

        only: the one rank of a larger job that is started here, by mpirun. This process then reports only that rank's own
        failures, and ends the rank when its own parent has gone. Descriptors that the rank inherits are closed here.
        """
        self._options = options
        self._spec = spec
        self._only = only
        self._parent = os.getppid()
        self._rendezvous = rendezvous
        self._console = console
        self._hosts = hosts
        self._starter = hosts or RankStarter(spec, max(options.ranks, options.max_ranks))
        self._selector = selectors.PollSelector()  # epoll refuses files, and output may go to one
        self._joining = JoinWatch(joining, self._selector, lambda: self._view.has_joined())
        if hosts is not None:
            hosts.attach(self._selector, console, self._joining.take)
        job = os.environ.get(variables.JOB, rendezvous.name) if only is not None else rendezvous.name
        self._view = JobView(options, job, only, self._selector)
        self._circles = CircleWatch(self._view.records)
        self._running: dict[int, RunningRank] = {}
        self._members = list(range(options.ranks))  # the numbers of the ranks of this generation, in the order of their ranks
        self._exits: list[RankExit] = []
        self._survived: list[RankExit] = []  # those of ranks without which the job has gone on
        self._newcomers = Newcomers(options, console, hosts)
        self._began_with = 0  # ranks in the first generation
        self._tails: dict[int, list[bytes]] = {}
        self._planned_signals: deque[tuple[float, signal.Signals]] = deque()
        self._notices = ExitNotices(rendezvous)
        self._refusal: Refusal | None = None
        self._is_paused = False
        self._interrupted = 0
        self._asked_to_end = False
        self._failed_among = 0
        self._check_children = False
        self._generations: Generations | None = None
        if options.elastic:
            patience = settings.timeout({**os.environ, **options.variables})
            self._generations = Generations(
                lambda: {number: rank.process for number, rank in self._running.items()},
                lambda: self._members,
                self._form_generation,
                patience,
                self._selector,
            )

    def run(self) -> JobResult:
        """Returns how it ended."""
        with self._selector, SignalPipe(*[SAVING] * (self._only is not None)) as signals:
            self._selector.register(signals.descriptor, selectors.EVENT_READ, lambda: self._on_signals(signals.read()))
            try:
                started = self._start()
                while started and self._running:
                    self._wait_for_events()
            finally:
                self._kill_all()
            warning, alone = self._joining.last_warning(), self._joining.trained_alone()
            hint = self._joining.hint({rank.rank: rank.pid for rank in self._exits})
            for server in (self._joining, self._refusal, self._generations):
                if server is not None:
                    server.close()
            result = self._result() if started else JobResult(CANNOT_START, started=False)
            if result.code != 0:
                self._write_records(result.reason)
            self._view.close()
        if result.code != 0:  # what has left the session of its rank
            supervision.end_adopted()
        if result.code == 0 and warning is not None:
            self._console.message(warning)
            if alone:
                result = JobResult(TRAINED_ALONE, warning, trained_alone=True)
        if result.code != 0 and hint is not None and not self._interrupted:
            self._console.message(hint)
        self._console.drain()  # signals have their handlers of before, so Ctrl-C ends this
        return result

    def _start(self) -> bool:
        for number in range(self._options.ranks) if self._only is None else [self._only]:
            if not self._start_rank(number):
                return False
        for descriptor in self._spec.inherited:
            os.close(descriptor)
        return True

    def _start_rank(self, number: int, added: Mapping[str, str] = NOTHING) -> bool:
        """Whether it could be started. added: as for `RankStarter.start`."""
        try:
            process = self._starter.start(number, self._newcomers.slot_of(number), added)
        except ForkedRank:  # in the fork, which must not touch the ranks started before it
            self._running.clear()
            raise
        except (OSError, subprocess.SubprocessError) as error:
            self._console.message(f"cannot start rank {number}: {self._options.command[0]!r}: {error}")
            return False
        rank = RunningRank(number, process, self._console, self._options.log_on_all_devices, self._options.prefix)
        self._running[number] = rank
        self._view.started(number, process.pid, process.memory, process.host)
        for stream in rank.streams:
            stream.watch(self._selector)
        return True

    def _start_newcomers(self) -> None:
        """Starts ranks in the places of those that were lost, and in slots that were added."""
        while not self._ending():
            number = max([*self._running, *(one.rank for one in self._exits)]) + 1
            why = self._newcomers.place(number, self._running)
            if not why:
                return
            added = newcomers.environment(len(self._running), self._began_with or self._options.ranks)
            if self._start_rank(number, added):
                process = self._running[number].process
                where = f"pid {process.pid}{process.host and f' on {process.host}'}"
                self._console.message(f"rank {number} ({where}) starts {why}")

    def _kill_all(self) -> None:
        """Leaves no rank behind when starting them, or the launcher itself, has failed."""
        if self._hosts is not None:
            self._hosts.close()
        for rank in self._running.values():
            rank.process.signal(signal.SIGKILL)
        for rank in self._running.values():
            while rank.process.poll() is None:
                time.sleep(0.001)
            for stream in rank.streams:
                stream.close()
        self._running.clear()

    def _wait_for_events(self) -> None:
        """Waits for events, and does what is due."""
        self._console.watch(self._selector)
        self._pause_or_resume()
        events = self._selector.select(self._sleep())
        for key, _ in events:
            callback: Callable[[], None] = key.data
            callback()
        if (self._hosts is not None and self._hosts.has_changed()) or self._check_children or not events:
            self._check_children = False
            self._reap()
            supervision.reap_adopted([*self._pids().values(), *(self._hosts.shells() if self._hosts is not None else ())])
        if self._only is not None and os.getppid() != self._parent and not self._ending():
            self._interrupt(signal.SIGTERM)
        now = time.monotonic()
        while self._planned_signals and self._planned_signals[0][0] <= now:
            self._signal_all(self._planned_signals.popleft()[1])
        self._notices.deliver(now)
        if self._generations is not None:
            self._start_newcomers()
            self._generations.review()
        pids = self._pids()
        for warning in (self._joining.early_warning(pids.values()), self._circles.warning(pids)):
            if warning is not None:
                self._console.message(warning)

    def _sleep(self) -> float:
        due = [self._planned_signals[0][0] if self._planned_signals else None, self._notices.next_try()]
        now = time.monotonic()
        return max(0.0, min([LONGEST_SLEEP, *(at - now for at in due if at is not None)]))

    def _pids(self) -> dict[int, int]:
        """The processes of the ranks that run on this host."""
        return {number: rank.process.pid for number, rank in self._running.items() if not rank.process.host}

    def _on_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                self._check_children = True
                continue
            if number == ASKING:
                self._view.print_on(self._console)
                continue
            self._asked_to_end = True
            if not self._ending():
                self._interrupt(signal.SIGTERM if number == SAVING else number)
            elif number == signal.SIGINT:  # asked again: do not wait any longer
                self._planned_signals.clear()
                self._signal_all(signal.SIGKILL)

    def _ending(self) -> bool:
        return bool(self._interrupted or self._failed_among)

    def _interrupt(self, number: int) -> None:
        self._interrupted = number
        if self._only is None and os.getppid() != self._parent:  # the supervisor was killed: there is no time to lose
            self._signal_all(signal.SIGKILL)
            return
        handling = set() if number == signal.SIGINT else {one for one in self._running.values() if one.process.handles_term()}
        seconds = self._grace(bool(handling))
        if self._only is None:
            time_left = f", which have {seconds:g} s for it (--grace)" if handling else ""
            self._console.message(f"interrupted; ending {counted(len(self._running), 'rank')}{time_left}")
        self._view.failed()
        if self._only is not None:  # mpirun may not leave the time for it when the rank has ended
            self._write_records("the job was ended")
        if number == signal.SIGINT:
            self._signal_all(signal.SIGINT)
            self._end_soon()
            return
        for rank in self._running.values():
            rank.signalled = True
            rank.process.signal(signal.SIGTERM, alone=rank in handling)
        self._planned_signals.append((time.monotonic() + seconds, signal.SIGKILL))

    def _grace(self, handled: bool) -> float:
        """Seconds between SIGTERM and SIGKILL. handled: whether a rank has a handler for SIGTERM, such as one that saves."""
        if self._options.grace is not None:
            return self._options.grace
        return DEFAULT_GRACE if handled or "SLURM_JOB_ID" in os.environ else GRACE + TERM_GRACE

    def _write_records(self, reason: str) -> None:
        if self._options.flight_recorder is not None:
            self._view.write(self._options.flight_recorder, reason or "the job was interrupted", self._console)

    def _end_soon(self) -> None:
        now = time.monotonic()
        self._planned_signals.extend([(now + GRACE, signal.SIGTERM), (now + GRACE + TERM_GRACE, signal.SIGKILL)])

    def _signal_all(self, number: signal.Signals) -> None:
        for rank in self._running.values():
            rank.signalled = True
            rank.process.signal(number)

    def _reap(self) -> None:
        """Finds the ranks that have ended. Of several since the last look, one that was killed is the cause."""
        looks = [(rank, rank.process.poll()) for rank in self._running.values()]
        ended = [(rank, status) for rank, status in looks if status is not None]
        for rank, status in sorted(ended, key=lambda one: not one[1].signal):
            self._on_exit(rank, status)

    def _on_exit(self, rank: RunningRank, status: ExitStatus) -> None:
        for stream in rank.streams:
            stream.finish()
        del self._running[rank.number]
        self._view.ended(rank.number, "was ended by the launcher" if rank.signalled else str(status))
        report = read_report(rank.reports)
        host = rank.process.host if self._only is None else socket.gethostname()
        self._exits.append(RankExit(rank.number, rank.process.pid, status, rank.signalled, report, host))
        self._tails[rank.number] = [rank.prefix + line for line in rank.tail]
        if rank.number == self._members[0]:
            self._notices.clear()
        if not status.success:
            if not self._ending():
                self._on_failure(self._exits[-1])
        elif self._generations is not None and self._generations.exited(rank.number, status.exit_code):
            self._signal_all(signal.SIGKILL)  # newcomers, which are too late
        elif rank.number == 0 and self._running and not rank.process.host:
            with suppress(OSError):  # a child of rank 0 still listens there
                self._refusal = Refusal(self._rendezvous, self._selector)
        if rank.number in self._members[1:] and self._members[0] in self._running:
            self._notices.add(self._members.index(rank.number), status.exit_code, time.monotonic())

    def _on_failure(self, failed: RankExit) -> None:
        if self._options.keep_going:
            self._console.message(f"{failed}{'; the others go on' if self._running else ''}")
            return
        if self._goes_on_without(failed):
            self._survived.append(failed)
            if failed.killed:
                self._newcomers.lost(failed.rank)
            left = len(self._generations.members()) if self._generations else 0
            if left == 0:  # it came too late to join
                return
            self._console.message(f"{failed}; {counted(left, 'rank')} {'go' if left > 1 else 'goes'} on (--elastic)")
            return
        if self._generations is not None:
            self._generations.end()
            if self._survived and failed.report is not None and failed.report.secondary:
                self._console.message(
                    "--elastic: ranks go on without a lost one in fit, and in functions of tnt.elastic.run or hvd.elastic.run: "
                    f"this script has communicated elsewhere, or could not go on ({page('reliability.md')})"
                )
        self._view.failed()
        self._failed_among = len(self._running) + 1
        self._end_soon()

    def _goes_on_without(self, lost: RankExit) -> bool:
        """Whether the ranks that are left form the next generation of the job. A script that has failed would fail again."""
        if self._generations is None or lost.rank not in self._members:
            return self._generations is not None
        if len(self._generations.members()) < (self._options.min_ranks or 1):
            return False
        return lost.killed or self._generations.has_refused(lost.rank)

    def _form_generation(self, members: list[int]) -> list[dict[str, str]]:
        rendezvous, places = self._starter.meeting(members)
        self._members, self._rendezvous, self._notices = members, rendezvous, ExitNotices(rendezvous)
        self._running[members[0]].is_shown = True
        self._began_with = self._began_with or len(members)
        return places

    def _result(self) -> JobResult:
        """How the job ended. Prints the error if it failed."""
        if self._interrupted:
            code = 128 + self._interrupted
            if self._only is not None and all(rank.status.exit_code in (0, code) for rank in self._exits):
                code = 0  # else mpirun would kill those that still save
            return JobResult(code, interrupted=True)
        failed = first_failure([one for one in self._exits if one not in self._survived])
        if failed is None or (self._options.keep_going and any(rank.status.success for rank in self._exits)):
            return JobResult(0)
        killed = frozenset(rank.rank for rank in self._exits if rank.killed)
        result = JobResult(
            failed.exit_code, str(failed), self._asked_to_end, killed=killed, failed=failed.rank, error=failed.error
        )
        if self._only is not None and not failed.failed_first:
            return result
        for line in self._tails[failed.rank]:
            self._console.write(STDERR, line + b"\n")
        if self._options.keep_going:  # each failure was told when it happened
            return result
        others = "" if failed.report and failed.report.message else self._others()
        self._console.message(f"{failed}{others}")
        return result

    def _others(self) -> str:
        others = self._failed_among - 1  # those still running when the first one failed
        if others <= 0:
            return ""
        if others == self._options.ranks - 1:
            return "; the other rank was ended" if others == 1 else f"; the other {others} ranks were ended"
        return f"; {counted(others, 'rank')} still running {'was' if others == 1 else 'were'} ended"

    def _pause_or_resume(self) -> None:
        """Stops reading output while too much is queued; the ranks then block in their writes."""
        if self._console.full != self._is_paused:
            self._is_paused = self._console.full
            pause_or_resume((one for rank in self._running.values() for one in rank.streams), self._is_paused, self._selector)
