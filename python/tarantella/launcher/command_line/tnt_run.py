"""`tnt-run`: the command lines for programs in C and C++, as those of `tarantella`.

The program needs no `--` before it, as with mpirun, and the output of all ranks is shown.
"""

import argparse
import os
import shlex
import shutil
from collections.abc import Sequence
from typing import NoReturn

from tarantella import _native
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.arguments import Parser
from tarantella.launcher.command_line.hosts import assign_ranks, read_hostfile, read_hosts, slots

EXAMPLES = """\
Examples:
  tnt-run -n 4 -- ./train --epochs 3
  tnt-run --hosts node1:4,node2:4 -- ./train

"""


def launcher_line(words: Sequence[str]) -> list[str]:
    """The command line of `tarantella` for the words after ``tnt-run``. Becomes srun if they ask for it.

    Raises:
        UsageError: a flag is unknown, or there is no program to run.
    """
    given = _parser().parse_args(list(words))
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if program and program[0].startswith("-"):
        raise UsageError(f"unknown option {program[0]!r} (see tnt-run --help)")
    if not program:
        raise UsageError("no program to run, as in tnt-run -n 4 -- ./train")
    hosts = given.hosts
    if given.ranks is None and hosts is None and given.hostfile is None:
        raise UsageError("how many ranks? Say -n N, or name hosts")
    if given.srun:
        _become_srun(given, program)
    if given.mpirun is not None and hosts is None and given.hostfile is None:
        hosts = f"localhost:{given.ranks}"
    pairs = {"-n": given.ranks, "--hosts": hosts, "--hostfile": given.hostfile, "--mpirun": given.mpirun}
    line = [word for option, value in pairs.items() if value is not None for word in (option, value)]
    flags = {"--keep-going": given.keep_going, "--no-prefix": given.no_prefix, "--dry-run": given.dry_run}
    line += [flag for flag, is_given in flags.items() if is_given]
    path = shutil.which(program[0]) or program[0]  # else `python` were the launcher's own
    return [*line, "--output-on-all-devices", "--python-interpreter", "", "--", path, *program[1:]]


def _become_srun(given: argparse.Namespace, program: Sequence[str]) -> NoReturn:
    """Ranks find each other by MPI then, and srun handles output, exit code and signals."""
    if given.keep_going:
        raise UsageError("--keep-going: is for ranks on this node; srun ends the job when a rank fails")
    hosts = read_hostfile(given.hostfile) if given.hostfile else read_hosts(given.hosts) if given.hosts else ()
    ranks = str(slots(hosts)) if given.ranks is None else given.ranks
    command = ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "-n", ranks]
    if hosts:
        command += ["-w", ",".join(host.name for host in assign_ranks(hosts, int(ranks)))]
    command += [] if given.no_prefix else ["--label"]
    if given.dry_run:
        print(shlex.join([*command, *program]))
        raise SystemExit(0)
    try:
        os.execvp(command[0], [*command, *program])
    except OSError as error:
        raise UsageError(f"cannot start srun: {error.strerror}") from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tnt-run",
        usage="tnt-run -n N [options] [--] PROGRAM [args...]",
        description="Starts N ranks of a program that uses Tarantella's C library, shows the output of all of them by lines, "
        "and ends them together when one fails. `tarantella` is the same launcher with more options.",
        allow_abbrev=False,
    )
    parser.examples = EXAMPLES
    add = parser.add_argument
    add("-n", "-np", "--np", "--ranks", dest="ranks", metavar="N", help="number of ranks; without, the slots of the hosts")
    add("--hosts", metavar="LIST", help="the hosts, with their slots: node1:4,node2:4")
    add("--hostfile", metavar="FILE", help="the same in a file: node1, node1:4 or node1 slots=4 in each line")
    add("--mpirun", metavar="COMMAND", help="what starts ranks on hosts, also on this one (default for other hosts: mpirun)")
    add("--srun", action="store_true", help="become srun instead, inside of an allocation of Slurm's")
    add("--no-prefix", action="store_true", help="show lines as they are, without [rank N] before them")
    add("--keep-going", action="store_true", help="if a rank fails, do not end the others (TNT_ERRORS_RETURN)")
    add("--dry-run", action="store_true", help="print what would be started")
    add("--version", action="version", version=f"tnt-run {_native.version()}", help="print the version")
    add("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments")
    return parser
