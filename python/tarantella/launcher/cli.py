"""The console script `tarantella`: from a command line to an exit code.

0 is success, 2 a command line that was refused (nothing was started), 126 a script that could not be
started; otherwise the code of the rank that failed, or 128 + the number of the signal.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Mapping
from functools import partial

from tarantella.launcher.cleanup import clean_up
from tarantella.launcher.environment import Meeting, mpi_environment, rank_environment, shared_environment
from tarantella.launcher.errors import UsageError
from tarantella.launcher.hosts import describe as describe_hosts
from tarantella.launcher.job import Job
from tarantella.launcher.mpi_job import MpiJob
from tarantella.launcher.mpirun import cleanup_command, find_mpirun, mpirun_command, rank_command
from tarantella.launcher.options import Cleanup, Options, parse
from tarantella.launcher.output import STDOUT, Console
from tarantella.launcher.sockets import Pinning
from tarantella.launcher.threads import describe, usable_cores

USAGE_ERROR = 2


def main(argv: list[str] | None = None) -> int:
    """Runs one job and returns what the process should exit with."""
    _open_standard_descriptors()
    console = Console()
    try:
        return _run(sys.argv[1:] if argv is None else argv, console)
    except UsageError as error:
        console.say(str(error))
        console.drain()
        return USAGE_ERROR
    except SystemExit as done:  # --help and --version: argparse has printed and wants to stop
        return done.code if isinstance(done.code, int) else 0
    except KeyboardInterrupt:  # before the first rank was started, or after the last one had ended
        return 128 + signal.SIGINT


def _run(argv: list[str], console: Console) -> int:
    options = parse(argv)
    if isinstance(options, Cleanup):
        return _clean_up(options, console)
    if options.hosts:
        return _run_on_hosts(options, console)
    cores = usable_cores()
    shared = shared_environment(options, os.environ, cores)
    meeting = Meeting.random()
    pinning = Pinning.wanted(options)
    threads = {**os.environ, **shared}["TF_NUM_INTRAOP_THREADS"]
    console.say(describe(options.ranks, cores, threads))
    console.drain()
    if options.dry_run:
        for rank in range(options.ranks):
            ours = rank_environment(shared, options.ranks, meeting, rank, "<a pipe to the launcher>")
            console.write(STDOUT, _describe_rank(rank, ours, options, pinning))
        console.drain()
        return 0
    environment = partial(rank_environment, shared, options.ranks, meeting)
    return Job(options, environment, meeting, console, prepare=None if pinning is None else pinning.preparation).run()


def _clean_up(options: Cleanup, console: Console) -> int:
    if not options.hosts:
        code = clean_up(console, force=options.force, dry_run=options.dry_run)
        console.drain()
        return code
    mpirun = find_mpirun(options.mpirun)
    command = mpirun_command(mpirun, options.hosts, cleanup_command(options), os.environ, root=os.geteuid() == 0)
    return MpiJob(command, os.environ, len(options.hosts), console).run()


def _run_on_hosts(options: Options, console: Console) -> int:
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
        return 0
    return MpiJob(command, everything, options.ranks, console).run()


def _describe_rank(rank: int, environment: Mapping[str, str], options: Options, pinning: Pinning | None) -> bytes:
    variables = "".join(f"  {key}={value}\n" for key, value in environment.items())
    bound = "" if pinning is None else f" on {pinning.of(rank)}"
    return os.fsencode(f"rank {rank}{bound}:\n{variables}  {shlex.join(options.command)}\n")


def _open_standard_descriptors() -> None:
    """Descriptors 0 to 2 may be closed (daemons do that); a pipe of ours must not take their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
