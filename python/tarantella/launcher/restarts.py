"""`tarantella --max-restarts K`: starts the ranks again after a failure, with `--min-ranks` on the remaining ranks or hosts.

An interrupted job, or a script that cannot be started, is no failure. A restart runs the script from its first line; the script
continues from its last checkpoint. `TNT_RESTART` is the number of restarts. Starts that fail soon are made at growing
intervals. A failure that every start will meet again ends the job.
"""

import os
import secrets
import select
import shutil
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tarantella import variables
from tarantella.launcher.base.signals import ASKING, ENDING, SignalPipe
from tarantella.launcher.base.words import UsageError, counted
from tarantella.launcher.command_line.hosts import Host, assign_ranks, host_of, read_hostfile, slots
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.launch import launch
from tarantella.launcher.show.output import Console
from tarantella.launcher.start.mpirun import end_job_command, find_mpirun, mpirun_command
from tarantella.launcher.start.preload import job_name
from tarantella.launcher.start.results import HOPELESS, JobResult
from tarantella.launcher.watch.cleanup import end_job
from tarantella.launcher.watch.mpi_job import MpiJob
from tarantella.settings import reproducible

PROBE_SECONDS = 30.0
"""Seconds after which a host that does not answer counts as gone."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second of several restarts in a row, and the most before any. The first is made at once."""
STEADY = 600.0
"""After a start that ran so many seconds, the next restart is a first one."""


class _CannotContinue(Exception):
    """The job cannot be restarted; the text is the reason."""


def run(options: Options, console: Console) -> JobResult:
    """Launches the job, and again after failures, as often as the options allow. Raises UsageError."""
    if options.max_restarts == 0 or options.dry_run:
        return launch(options, console)
    launcher = os.getpid()
    commits = str(Path(tempfile.gettempdir(), f"tarantella-commits-{secrets.token_hex(8)}"))  # a rank makes it if it commits
    try:
        return _run(options, console, {variables.JOB: job_name(), variables.COMMITS: commits})
    finally:
        if os.getpid() == launcher:  # a rank that is a fork comes by here as well
            shutil.rmtree(commits, ignore_errors=True)


def _run(options: Options, console: Console, common_environment: dict[str, str]) -> JobResult:
    job = common_environment[variables.JOB]
    failures = _Failures()
    for restart in range(options.max_restarts + 1):
        began = time.monotonic()
        own = common_environment | {variables.RESTART: str(restart)}
        result = launch(replace(options, variables=options.variables | own), console)
        if result.code == 0 or result.interrupted or not result.started or result.trained_alone:
            return result
        if restart == options.max_restarts:
            console.message(f"not restarted: {restart} of {counted(restart, 'restart')} made")
            break
        try:
            pause = failures.note(options, result, time.monotonic() - began)
            options = _next_options(options, result, job, console)
        except _CannotContinue as reason:
            console.message(f"not restarted: {reason}")
            break
        interrupted = _wait(pause, console)
        if interrupted:
            return JobResult(128 + interrupted, interrupted=True)
        console.message(f"restart {restart + 1} of {options.max_restarts} on {_where(options)}: {result.reason}")
    console.drain()
    return result


class _Failures:
    """The failures of a job so far: how long to wait before the next start, and whether it would fail like the last one."""

    def __init__(self) -> None:
        self._error = ""
        self._pause = 0.0

    def note(self, options: Options, result: JobResult, seconds: float) -> float:
        """Returns the seconds to wait before the next start. Raises _CannotContinue. seconds: how long the last one ran."""
        wrong = _syntax_error(options)
        if wrong:
            raise _CannotContinue(f"{wrong}: correct the script")
        said = result.reason.rpartition(" exited with code ")[2].partition(": ")[2]  # by mpirun the reason alone is known
        if HOPELESS.match(said):
            raise _CannotContinue(f"the next start would fail alike: {said}")
        if result.error and result.error == self._error:
            raise _CannotContinue(f"the last start has failed alike: {result.error}")
        self._error = result.error
        pause = 0.0 if seconds >= STEADY else self._pause
        self._pause = min(max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE)
        return pause


def _syntax_error(options: Options) -> str:
    """The error in the text of a script that our own interpreter runs; empty if there is none, or if it runs something else."""
    name = options.program[0] if options.program else ""
    try:
        text = Path(name).read_bytes() if options.source is None and name.endswith(".py") else options.source or b""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:  # a ValueError: of a NUL in the text
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{name}{line} has a {type(error).__name__}"
    except OSError:  # it has been removed
        return ""
    return ""


def _wait(seconds: float, console: Console) -> int:
    """Waits before a restart. Returns the number of the signal that asked for the job's end, or 0."""
    if seconds == 0:
        return 0
    console.announce(f"the next start is in {seconds:g} s")
    deadline = time.monotonic() + seconds
    with SignalPipe() as signals:
        while (left := deadline - time.monotonic()) > 0:
            select.select([signals.descriptor], [], [], left)
            numbers = signals.read()
            if ASKING in numbers:
                console.announce(f"no rank runs: the next start is in {max(0.0, deadline - time.monotonic()):.0f} s")
            ending = [number for number in numbers if number in ENDING]
            if ending:
                console.announce("interrupted")
                return ending[0]
    return 0


def _next_options(options: Options, result: JobResult, job: str, console: Console) -> Options:
    """The options of the next start, after the last one has ended on all hosts. Raises _CannotContinue."""
    if options.hosts:
        return _options_on_hosts(options, result, job, console)
    remaining = end_job(job)
    if remaining:
        raise _CannotContinue(f"processes of the job do not end: {', '.join(map(str, remaining))}")
    if options.min_ranks is None:
        return options
    ranks = _usable_ranks(options.ranks - len(result.killed), options, "ranks that were killed do not come back")
    return replace(options, ranks=ranks)


def _options_on_hosts(options: Options, result: JobResult, job: str, console: Console) -> Options:
    lost = options.lost_hosts | {host_of(options.hosts, rank) for rank in result.killed}
    options = replace(options, all_hosts=_hosts_by_now(options, console), lost_hosts=lost)
    gone = _unreachable_hosts(options, job, console)
    if options.min_ranks is None:  # a host may be back when mpirun asks
        enough = slots(options.all_hosts) >= options.ranks
        return replace(options, hosts=assign_ranks(options.all_hosts, options.ranks)) if enough else options
    gone |= lost
    hosts = tuple(host for host in options.all_hosts if host.name not in gone)
    wanted = min(options.requested_ranks, slots(hosts))
    ranks = _usable_ranks(wanted, options, f"gone: {', '.join(sorted(gone))}" if gone else "no host has gone")
    return replace(options, ranks=ranks, hosts=assign_ranks(hosts, ranks))


def _hosts_by_now(options: Options, console: Console) -> tuple[Host, ...]:
    """The hosts that the hostfile names now: a host may have been added, or taken out for a while."""
    if options.hostfile is None:
        return options.all_hosts
    try:
        return read_hostfile(options.hostfile, options.per_node)
    except UsageError as error:
        console.message(f"{error}; the hosts are those of the last start")
        return options.all_hosts


def _unreachable_hosts(options: Options, job: str, console: Console) -> set[str]:
    """The hosts that do not answer. Ends the remaining processes of the job on the others."""
    if _end_on(options.all_hosts, options, job, console):
        return set()
    if len(options.all_hosts) == 1:
        return {options.all_hosts[0].name}
    return {host.name for host in options.all_hosts if not _end_on([host], options, job, console)}


def _end_on(hosts: Sequence[Host], options: Options, job: str, console: Console) -> bool:
    each = [Host(host.name, 1) for host in hosts]
    command = mpirun_command(
        find_mpirun(options.mpirun), each, end_job_command(job), os.environ, options.variables, root=os.geteuid() == 0
    )
    result = MpiJob(command, {**os.environ, **options.variables}, len(each), console, timeout=PROBE_SECONDS).run()
    if result.interrupted:
        raise _CannotContinue("interrupted")
    return result.code == 0


def _usable_ranks(ranks: int, options: Options, why: str) -> int:
    """The largest number of ranks, up to `ranks`, with which the job can continue. Raises _CannotContinue."""
    least = options.min_ranks or 1
    shards = reproducible({**os.environ, **options.variables})
    if shards is not None and ranks > 0:
        ranks = next(n for n in range(min(ranks, shards), 0, -1) if shards % n == 0)
    if ranks < least:
        shared = f" that share {counted(shards, 'shard')} evenly" if shards is not None else ""
        raise _CannotContinue(f"{counted(max(0, ranks), 'rank')}{shared} left, fewer than --min-ranks {least} ({why})")
    return ranks


def _where(options: Options) -> str:
    names = f" ({', '.join(map(str, options.hosts))})" if options.hosts else ""
    return f"{counted(options.ranks, 'rank')}{names}"
