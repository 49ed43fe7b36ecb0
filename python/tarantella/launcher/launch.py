"""One start of a job, from checked options to its end: on this node, or by mpirun on several hosts."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from functools import partial

from tarantella.launcher.environment import Meeting, mpi_environment, rank_environment, shared_environment
from tarantella.launcher.hosts import describe as describe_hosts
from tarantella.launcher.job import Job
from tarantella.launcher.mpi_job import MpiJob
from tarantella.launcher.mpirun import find_mpirun, mpirun_command, rank_command
from tarantella.launcher.options import Options
from tarantella.launcher.output import STDOUT, Console
from tarantella.launcher.sockets import Pinning
from tarantella.launcher.text import describe_cores
from tarantella.launcher.verdict import Ended
from tarantella.threads import usable_cores


def launch(options: Options, console: Console) -> Ended:
    """Starts the ranks and stays until all have ended; with a dry run, says what it would start. Raises UsageError."""
    return _on_hosts(options, console) if options.hosts else _here(options, console)


def _here(options: Options, console: Console) -> Ended:
    cores = usable_cores()
    shared = shared_environment(options, os.environ, cores)
    meeting = Meeting.random()
    pinning = Pinning.wanted(options)
    threads = {**os.environ, **shared}["TF_NUM_INTRAOP_THREADS"]
    console.say(describe_cores(options.ranks, cores, threads))
    console.drain()
    if options.dry_run:
        for rank in range(options.ranks):
            ours = rank_environment(shared, options.ranks, meeting, rank, "<a pipe to the launcher>")
            console.write(STDOUT, _describe_rank(rank, ours, options, pinning))
        console.drain()
        return Ended(0)
    environment = partial(rank_environment, shared, options.ranks, meeting)
    return Job(options, environment, meeting, console, prepare=None if pinning is None else pinning.preparation).run()


def _on_hosts(options: Options, console: Console) -> Ended:
    mpirun = find_mpirun(options.mpirun)
    ours = mpi_environment(options, os.environ)
    everything = {**os.environ, **ours}
    command = mpirun_command(
        mpirun, options.hosts, rank_command(options), everything, options.variables, root=os.geteuid() == 0
    )
    console.say(f"{describe_hosts(options.hosts)}, started by {mpirun}")
    console.drain()
    if options.dry_run:
        variables = "".join(f"{key}={shlex.quote(value)} " for key, value in ours.items())
        console.write(STDOUT, os.fsencode(f"{variables}{shlex.join(command)}\n"))
        console.drain()
        return Ended(0)
    return MpiJob(command, everything, options.ranks, console).run()


def _describe_rank(rank: int, environment: Mapping[str, str], options: Options, pinning: Pinning | None) -> bytes:
    variables = "".join(f"  {key}={value}\n" for key, value in environment.items())
    bound = "" if pinning is None else f" on {pinning.of(rank)}"
    return os.fsencode(f"rank {rank}{bound}:\n{variables}  {shlex.join(options.command)}\n")
