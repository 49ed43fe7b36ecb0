"""One start of a job, from checked options to its end: on this node, or by mpirun or a remote shell on several hosts."""

import os
import shlex
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tarantella import settings, variables
from tarantella.launcher.base.signals import SAVING
from tarantella.launcher.base.words import describe_cores
from tarantella.launcher.command_line.hosts import describe as describe_hosts
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.show.job_view import describe_launch
from tarantella.launcher.show.output import STDOUT, Console
from tarantella.launcher.start.environment import Rendezvous, mpi_environment, rank_environment, shared_environment
from tarantella.launcher.start.mpirun import find_mpirun, mpirun_command, rank_command
from tarantella.launcher.start.pinning import Pinning
from tarantella.launcher.start.preload import preloaded
from tarantella.launcher.start.process import RankSpec
from tarantella.launcher.start.remote_hosts import RemoteHosts
from tarantella.launcher.start.results import JobResult
from tarantella.launcher.watch.job import DEFAULT_GRACE, TERM_GRACE, Job
from tarantella.launcher.watch.mpi_job import MpiJob, Saving
from tarantella.launcher.watch.rank_notices import RankNotices
from tarantella.threads import usable_cores


def launch(options: Options, console: Console) -> JobResult:
    """Starts the ranks and returns when all have ended; with a dry run, prints what it would start. Raises UsageError."""
    os.environ.pop(variables.JOINED, None)  # a launcher that a rank has started starts ranks of another job
    if options.hosts and options.elastic:
        return _elastic_on_hosts(options, console)
    return _on_hosts(options, console) if options.hosts else _here(options, console)


def _here(options: Options, console: Console) -> JobResult:
    cores = usable_cores()
    shared = shared_environment(options, os.environ, cores)
    rendezvous = Rendezvous.random()
    if options.elastic:
        shared = {variables.JOB: rendezvous.name, **shared}  # what is random goes by it, as it stays in all generations
    pinning = Pinning.from_options(options, options.ranks)
    shared |= pinning.variables if pinning is not None else {}
    threads = {**os.environ, **shared}["TF_NUM_INTRAOP_THREADS"]
    chosen = options.may_preload and options.preload
    imported = f"; {', '.join(options.preload)} imported once for all" if chosen else ""
    bound = "" if pinning is None or pinning.is_asked_for else ", on cores of its own"
    console.message(describe_cores(options.ranks, cores, threads) + bound + imported)
    console.drain()
    if options.dry_run:
        for rank in range(options.ranks):
            added = rank_environment(shared, options.ranks, rendezvous, rank, "<a pipe to the launcher>")
            console.write(STDOUT, _describe_rank(rank, added, options, pinning))
        console.drain()
        return JobResult(0)
    spec = RankSpec(
        command=options.command,
        environment=partial(rank_environment, shared, options.ranks, rendezvous),
        output_on_all_devices=options.output_on_all_devices,
        elastic=options.elastic,
        prepare=None if pinning is None else pinning.preparation,
        preloaded=preloaded() if options.preload else None,
        program=options.program,
        source=options.source,
    )
    return Job(options, spec, rendezvous, console, joining=options.ranks if options.is_python else 0).run()


def _elastic_on_hosts(options: Options, console: Console) -> JobResult:
    shared = {variables.JOB: Rendezvous.random().name}  # what is random goes by it
    hosts = RemoteHosts(replace(options, variables={**shared, **options.variables}))
    if options.dry_run:
        for host in options.hosts:
            console.write(STDOUT, os.fsencode(f"{host}: {shlex.join(hosts.command(host))}\n"))
        console.drain()
        return JobResult(0)
    hosts.open(console)
    joining = options.ranks if options.is_python else 0
    spec = RankSpec(options.command, lambda _number, _report: {}, elastic=True)
    return Job(options, spec, hosts.rendezvous, console, joining=joining, hosts=hosts).run()


def _on_hosts(options: Options, console: Console) -> JobResult:
    mpirun = find_mpirun(options.mpirun)
    added = mpi_environment(options, os.environ)
    everything = {**os.environ, **added}
    command = mpirun_command(
        mpirun, options.hosts, rank_command(options), everything, options.variables, root=os.geteuid() == 0
    )
    console.message(f"{describe_hosts(options.hosts)}, started by {mpirun}")
    console.drain()
    if options.dry_run:
        assignments = "".join(f"{key}={shlex.quote(value)} " for key, value in added.items())
        console.write(STDOUT, os.fsencode(f"{assignments}{shlex.join(command)}\n"))
        console.drain()
        return JobResult(0)
    describe = partial(describe_launch, options, everything[variables.JOB], time.time())
    notices = RankNotices(range(options.ranks), settings.timeout(everything))
    # Open MPI's kills ranks 1 s after it was told to end them; it passes other signals on
    told = signal.SIGTERM if mpirun.hydra else SAVING
    seconds = TERM_GRACE + (DEFAULT_GRACE if options.grace is None else options.grace)
    saving = Saving(told, seconds, lambda: notices.all_started)
    return MpiJob(command, everything, options.ranks, console, describe=describe, notices=notices, saving=saving).run()


def _describe_rank(rank: int, environment: Mapping[str, str], options: Options, pinning: Pinning | None) -> bytes:
    shown = {**environment, variables.TOKEN: "<a secret>"}
    assignments = "".join(f"  {key}={value}\n" for key, value in shown.items())
    bound = "" if pinning is None else f" on {pinning.place_of(rank)}"
    return os.fsencode(f"rank {rank}{bound}:\n{assignments}  {shlex.join(options.command)}\n")
