"""`tarantella --max-restarts K`: the ranks are started again after a failure, on what is left if that is allowed.

A job that was asked to end is not a failure, and neither is a script that cannot be started at all. What the script does
between two checkpoints is done again: a restart begins with the script's first line (`TNT_RESTART` says how often that was).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from tarantella import variables
from tarantella.launcher.cleanup import end_job
from tarantella.launcher.hosts import Host, host_of, place, slots
from tarantella.launcher.launch import launch
from tarantella.launcher.mpi_job import MpiJob
from tarantella.launcher.mpirun import end_job_command, find_mpirun, mpirun_command
from tarantella.launcher.options import Options
from tarantella.launcher.output import Console
from tarantella.launcher.preload import job_name
from tarantella.launcher.text import counted
from tarantella.launcher.verdict import Ended
from tarantella.settings import reproducible

PROBE_SECONDS = 30.0
"""The longest that a host may take to answer before it counts as gone."""


class _NothingLeft(Exception):
    """The job cannot go on; the text is the reason."""


def run(options: Options, console: Console) -> Ended:
    """Launches the job, and again after failures, as often as the options allow. Raises UsageError."""
    if options.max_restarts == 0 or options.dry_run:
        return launch(options, console)
    job = job_name()
    for restart in range(options.max_restarts + 1):
        own = {variables.RESTART: str(restart), variables.JOB: job}
        ended = launch(replace(options, variables=options.variables | own), console)
        if ended.code == 0 or ended.interrupted or not ended.started:
            return ended
        if restart == options.max_restarts:
            console.say(f"not restarted: {restart} of {counted(restart, 'restart')} made")
            break
        try:
            options = _what_is_left(options, ended, job, console)
        except _NothingLeft as reason:
            console.say(f"not restarted: {reason}")
            break
        console.say(f"restart {restart + 1} of {options.max_restarts} on {_where(options)}: {ended.why}")
    console.drain()
    return ended


def _what_is_left(options: Options, ended: Ended, job: str, console: Console) -> Options:
    """The options of the next start, after all of the last one has ended. Raises _NothingLeft."""
    if options.hosts:
        return _hosts_left(options, ended, job, console)
    staying = end_job(job)
    if staying:
        raise _NothingLeft(f"processes of the job do not end: {', '.join(map(str, staying))}")
    if options.min_ranks is None:
        return options
    return replace(options, ranks=_enough(options.ranks - len(ended.lost), options, "ranks that were killed do not come back"))


def _hosts_left(options: Options, ended: Ended, job: str, console: Console) -> Options:
    gone = _gone(options, job, console)
    if options.min_ranks is None:
        return options  # a host that has gone may be back when mpirun asks
    gone |= {host_of(options.hosts, rank) for rank in ended.lost}
    room = tuple(host for host in options.room if host.name not in gone)
    wanted = min(options.wanted_ranks, slots(room))
    ranks = _enough(wanted, options, f"gone: {', '.join(sorted(gone))}" if gone else "no host has gone")
    return replace(options, ranks=ranks, room=room, hosts=place(room, ranks))


def _gone(options: Options, job: str, console: Console) -> set[str]:
    """The hosts that do not answer; on the others nothing of the job runs any more."""
    if _end_on(options.room, options, job, console):
        return set()
    if len(options.room) == 1:
        return {options.room[0].name}
    return {host.name for host in options.room if not _end_on([host], options, job, console)}


def _end_on(hosts: Sequence[Host], options: Options, job: str, console: Console) -> bool:
    each = [Host(host.name, 1) for host in hosts]
    command = mpirun_command(
        find_mpirun(options.mpirun), each, end_job_command(job), os.environ, options.variables, root=os.geteuid() == 0
    )
    ended = MpiJob(command, {**os.environ, **options.variables}, len(each), console, within=PROBE_SECONDS).run()
    if ended.interrupted:
        raise _NothingLeft("interrupted")
    return ended.code == 0


def _enough(ranks: int, options: Options, why: str) -> int:
    """The most ranks of so many with which the job may go on."""
    least = options.min_ranks or 1
    shards = reproducible({**os.environ, **options.variables})
    if shards is not None and ranks > 0:
        ranks = next(n for n in range(min(ranks, shards), 0, -1) if shards % n == 0)
    if ranks < least:
        shared = f" that share {counted(shards, 'shard')} evenly" if shards is not None else ""
        raise _NothingLeft(f"{counted(max(0, ranks), 'rank')}{shared} left, fewer than --min-ranks {least} ({why})")
    return ranks


def _where(options: Options) -> str:
    names = f" ({', '.join(map(str, options.hosts))})" if options.hosts else ""
    return f"{counted(options.ranks, 'rank')}{names}"
