"""`tarantella --max-restarts K`: starts the ranks again after a failure, with `--min-ranks` on the remaining ranks or hosts.

An interrupted job, or a script that cannot be started, is no failure. A restart runs the script from its first line; the script
continues from its last checkpoint. `TNT_RESTART` is the number of restarts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from tarantella import variables
from tarantella.launcher.cleanup import end_job
from tarantella.launcher.hosts import Host, assign_ranks, host_of, slots
from tarantella.launcher.launch import launch
from tarantella.launcher.mpi_job import MpiJob
from tarantella.launcher.mpirun import end_job_command, find_mpirun, mpirun_command
from tarantella.launcher.options import Options
from tarantella.launcher.output import Console
from tarantella.launcher.preload import job_name
from tarantella.launcher.results import JobResult
from tarantella.launcher.text import counted
from tarantella.settings import reproducible

PROBE_SECONDS = 30.0
"""Seconds after which a host that does not answer counts as gone."""


class _CannotContinue(Exception):
    """The job cannot be restarted; the text is the reason."""


def run(options: Options, console: Console) -> JobResult:
    """Launches the job, and again after failures, as often as the options allow. Raises UsageError."""
    if options.max_restarts == 0 or options.dry_run:
        return launch(options, console)
    job = job_name()
    for restart in range(options.max_restarts + 1):
        own = {variables.RESTART: str(restart), variables.JOB: job}
        result = launch(replace(options, variables=options.variables | own), console)
        if result.code == 0 or result.interrupted or not result.started:
            return result
        if restart == options.max_restarts:
            console.message(f"not restarted: {restart} of {counted(restart, 'restart')} made")
            break
        try:
            options = _next_options(options, result, job, console)
        except _CannotContinue as reason:
            console.message(f"not restarted: {reason}")
            break
        console.message(f"restart {restart + 1} of {options.max_restarts} on {_where(options)}: {result.reason}")
    console.drain()
    return result


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
    gone = _unreachable_hosts(options, job, console)
    if options.min_ranks is None:
        return options  # the host may be back when mpirun asks
    gone |= {host_of(options.hosts, rank) for rank in result.killed}
    hosts = tuple(host for host in options.all_hosts if host.name not in gone)
    wanted = min(options.requested_ranks, slots(hosts))
    ranks = _usable_ranks(wanted, options, f"gone: {', '.join(sorted(gone))}" if gone else "no host has gone")
    return replace(options, ranks=ranks, all_hosts=hosts, hosts=assign_ranks(hosts, ranks))


def _unreachable_hosts(options: Options, job: str, console: Console) -> set[str]:
    """The hosts that do not answer. Ends what is left of the job on the others."""
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
