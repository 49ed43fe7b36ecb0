"""The console script `tarantella`: from a command line to an exit code.

0 is success, 2 a command line that was refused (nothing was started), 126 a script that could not be
started; otherwise the code of the rank that failed, or 128 + the number of the signal.
"""

import os
import signal
import sys
from dataclasses import replace

from tarantella.inspection import doctor, explain, status
from tarantella.launcher import restarts
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line import horovodrun, tnt_run
from tarantella.launcher.command_line.options import Cleanup, Options, parse
from tarantella.launcher.show.output import Console
from tarantella.launcher.start import preload
from tarantella.launcher.start.environment import shared_environment
from tarantella.launcher.start.forked import ForkedRank
from tarantella.launcher.start.mpirun import cleanup_command, find_mpirun, mpirun_command
from tarantella.launcher.watch import supervision
from tarantella.launcher.watch.cleanup import clean_up
from tarantella.launcher.watch.mpi_job import GRACE, MpiJob
from tarantella.scaling.command import simulate
from tarantella.threads import usable_cores
from tarantella.verify.command import verify

USAGE_ERROR = 2


def main(argv: list[str] | None = None) -> int:
    """Runs one job and returns the exit code of the process."""
    _open_standard_descriptors()
    console = Console()
    try:
        return _run(sys.argv[1:] if argv is None else argv, console)
    except UsageError as error:
        console.announce(str(error))
        return USAGE_ERROR
    except OSError as error:
        console.announce(refusal(error))
        return 1
    except SystemExit as done:  # --help and --version: argparse has printed and wants to stop
        if done.code is None or isinstance(done.code, int):
            return done.code or 0
        console.announce(str(done.code))
        return 1
    except KeyboardInterrupt:  # before the first rank was started, or after the last one had ended
        return 128 + signal.SIGINT
    except ForkedRank as forked:
        rank = forked
    return rank.run()  # outside of the try block, which must not catch exceptions of the script


def tnt_run_main() -> int:
    """The console script `tnt-run`."""
    return main(["tnt-run", *sys.argv[1:]])


def refusal(error: OSError) -> str:
    """What to say where the system does not give the launcher what it needs, as in some containers."""
    return (
        f"the system has refused what the launcher needs ({error}): Linux 5.3 or newer, with /proc mounted, and pidfd_open, "
        "setsid and waitid allowed, also in a container"
    )


def _run(argv: list[str], console: Console) -> int:
    if argv[:1] == ["status"]:
        return status(argv[1:])
    if argv[:1] == ["doctor"]:
        return doctor(argv[1:])
    if argv[:1] == ["explain"]:
        return explain(argv[1:])
    if argv[:1] == ["verify"]:
        supervision.split(console)
        return verify(argv[1:], console)
    if argv[:1] == ["simulate"]:
        print(simulate(argv[1:]), end="")
        return 0
    if argv[:1] == ["horovodrun"]:
        argv, ignored = horovodrun.launcher_line(argv[1:])
        if ignored:
            console.message(f"ignored, they have no meaning here: {', '.join(ignored)}")
    if argv[:1] == ["tnt-run"]:
        argv = tnt_run.launcher_line(argv[1:])
    options = parse(argv)
    if isinstance(options, Cleanup):
        return _clean_up(options, console)
    if not options.dry_run:
        supervision.split(console, grace=GRACE if options.hosts else 0)
    if not options.dry_run:
        options = _with_preloaded(options, argv, console)
    return restarts.run(options, console).code or int(console.lost)


def _with_preloaded(options: Options, argv: list[str], console: Console) -> Options:
    """The options, after the modules that they name were imported here, or those that the script imports first."""
    chosen = options.may_preload and options.program[:1] and options.source is None
    modules = preload.preloadable(options.program[0]) if chosen else options.preload
    if not modules:
        return options
    preload.restart_with(argv, shared_environment(options, os.environ, usable_cores()))
    try:
        preload.load(modules, options.program)
    except UsageError as error:
        if not chosen:
            raise
        console.message(f"each rank imports {modules[0]} itself: {error}")
        return options
    return replace(options, preload=modules)


def _clean_up(options: Cleanup, console: Console) -> int:
    if not options.hosts:
        code = clean_up(console, force=options.force, dry_run=options.dry_run)
        console.drain()
        return code
    mpirun = find_mpirun(options.mpirun)
    command = mpirun_command(mpirun, options.hosts, cleanup_command(options), os.environ, root=os.geteuid() == 0)
    return MpiJob(command, os.environ, len(options.hosts), console).run().code


def _open_standard_descriptors() -> None:
    """Opens descriptors 0 to 2 if they are closed, as in daemons, so that no pipe takes their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
