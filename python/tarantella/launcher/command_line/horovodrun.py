"""`tarantella horovodrun`: the command lines of Horovod's launcher, as those of ours."""

import argparse
from collections.abc import Sequence

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.arguments import Parser

MAX_RESTARTS = 3
"""How often an elastic job starts again if the command line does not say."""

_IGNORED_VALUES = (
    "--cycle-time-ms",
    "--cache-capacity",
    "--network-interfaces",
    "--network-interface",
    "--ssh-port",
    "-p",
    "--ssh-identity-file",
    "-i",
    "--start-timeout",
    "--elastic-timeout",
    "--max-np",
    "--max-num-proc",
    "--output-filename",
    "--num-nccl-streams",
    "--thread-affinity",
    "--stall-check-warning-time-seconds",
    "--stall-check-shutdown-time-seconds",
    "--mpi-args",
    "--binding-args",
)
_IGNORED_FLAGS = (
    "--verbose",
    "--disable-cache",
    "--gloo",
    "--use-gloo",
    "--mpi",
    "--use-mpi",
    "--jsrun",
    "--hierarchical-allreduce",
    "--no-hierarchical-allreduce",
    "--hierarchical-allgather",
    "--no-hierarchical-allgather",
    "--timeline-mark-cycles",
    "--no-stall-check",
    "--tcp",
    "--no-timeline-mark-cycles",
)
_LEVELS = {"TRACE": "DEBUG", "FATAL": "ERROR"}


def launcher_line(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our command line for the words after ``horovodrun``, and the flags among them that have no meaning here.

    Raises:
        UsageError: a flag is unknown, or there is no program to run.
    """
    given = _parser().parse_args(list(words))
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not program:
        raise UsageError("no program to run, as in tarantella horovodrun -np 4 python train.py")
    line = ["--horovod"]
    pairs = {
        "-n": given.ranks,
        "--hosts": given.hosts,
        "--hostfile": given.hostfile,
        "--devices-per-node": given.slots_per_host,
        "--timeline": given.timeline,
        "--fusion-threshold": None if given.fusion is None else f"{given.fusion}M",
        "--log-level": given.log_level and _LEVELS.get(given.log_level.upper(), given.log_level.upper()),
        "--min-ranks": given.min_ranks,
        "--max-restarts": given.reset_limit or (MAX_RESTARTS if given.min_ranks else None),
    }
    for option, value in pairs.items():
        line += [] if value is None else [option, str(value)]
    for variable in given.environment:
        line += ["-x", variable]
    return [*line, "--", *program], given.ignored


class _Ignore(argparse.Action):
    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: str | None = None) -> None:
        namespace.ignored.append(option)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tarantella horovodrun",
        description="Starts a script for Horovod. In it, `import horovod` imports tarantella.horovod.",
        allow_abbrev=False,
    )
    parser.set_defaults(ignored=[])
    add = parser.add_argument
    add("-np", "--num-proc", dest="ranks", metavar="N", help="number of ranks")
    add("-H", "--hosts", metavar="LIST", help="hosts and their numbers of ranks: a:2,b:2")
    add("-hostfile", "--hostfile", metavar="FILE", help="file with the same information")
    add("--slots-per-host", metavar="N", help="ranks on each host")
    add("--timeline-filename", dest="timeline", metavar="FILE", help="write a timeline of the run to FILE")
    add("--fusion-threshold-mb", dest="fusion", metavar="MB", type=int, help="size of a bucket of gradients")
    add("--log-level", metavar="LEVEL", help="lowest level to log")
    add("--min-np", "--min-num-proc", dest="min_ranks", metavar="N", help="continue with at least N ranks if some are lost")
    add("--reset-limit", dest="reset_limit", metavar="K", help="restart at most K times after a failure")
    add("-x", "--env", dest="environment", metavar="KEY=VALUE", action="append", default=[], help="a variable for the ranks")
    for name in _IGNORED_VALUES:
        add(name, dest="nothing", action=_Ignore, help=argparse.SUPPRESS)
    for name in _IGNORED_FLAGS:
        add(name, dest="nothing", action=_Ignore, nargs=0, help=argparse.SUPPRESS)
    add("program", nargs=argparse.REMAINDER, metavar="COMMAND", help="the script and its arguments")
    return parser
