"""The command line: what may be given, and the one clear line that says what is wrong with it.

Everything is checked here, before any rank exists: an error that every rank would find for itself would
be printed N times, or not at all.
"""

from __future__ import annotations

import argparse
import enum
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from tarantella import variables
from tarantella.errors import InvalidArgumentError
from tarantella.launcher.devices import visible_gpus
from tarantella.launcher.errors import UsageError
from tarantella.launcher.hosts import Host, all_here, place, read_hostfile, read_hosts, slots
from tarantella.launcher.text import counted
from tarantella.settings import kilobytes, reproducible

MAX_RANKS = 512
GRADIENT_DTYPES = ("bfloat16", "float16", "none")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
DECIMAL = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
EXAMPLE = "tarantella -n 4 -- train.py"


class Pin(enum.Enum):
    """What of a rank is bound to a socket."""

    CORES = "--pin-to-socket"
    MEMORY = "--pin-memory-to-socket"

    @property
    def option(self) -> str:
        """Which asks for it; that of memory for both."""
        return self.value


@dataclass(frozen=True)
class Cleanup:
    """A checked command line that asks for what jobs have left behind to be ended."""

    force: bool
    dry_run: bool
    hosts: tuple[Host, ...]
    """Where, each once; empty for this machine."""
    mpirun: tuple[str, ...]


@dataclass(frozen=True)
class Options:
    """A checked command line that asks for a job."""

    ranks: int
    command: tuple[str, ...]
    """What every rank runs: interpreter, script, arguments."""
    variables: dict[str, str]
    """What options and -x put into the environment of every rank; -x has won."""
    output_on_all_devices: bool
    log_on_all_devices: bool
    dry_run: bool
    hosts: tuple[Host, ...] = ()
    """Where mpirun starts how many of the ranks; empty where the launcher starts all of them itself, on this node."""
    mpirun: tuple[str, ...] = ("mpirun",)
    pin: Pin | None = None
    max_restarts: int = 0
    min_ranks: int | None = None
    """With how few ranks it may go on after a failure; None: with all."""
    room: tuple[Host, ...] = ()
    """All hosts that were given, those without a rank included."""
    wanted_ranks: int = 0
    """As they were at first."""
    preload: tuple[str, ...] = ()
    """Modules that the launcher imports for all ranks, which are its forks then; none: each rank is a program of its own."""


def parse(argv: Sequence[str]) -> Options | Cleanup:
    """Checks a command line. Raises UsageError; SystemExit for --help and --version."""
    before, dashes, after = split(argv)
    given, extra = _parser().parse_known_args(before)
    if extra and extra[0].startswith("-"):
        raise UsageError(f"unknown option {extra[0]!r} (options go before `--`; see tarantella --help)")
    if extra and not dashes:
        raise UsageError(f"{extra[0]!r} is no option: put `--` before the script, as in {EXAMPLE}")
    if extra:
        raise UsageError(f"unexpected word {extra[0]!r} before `--`")
    hosts = _hosts(given)
    by_mpirun = bool(given.mpirun) or not all_here(hosts)
    if given.cleanup:
        each = tuple(Host(host.name, 1) for host in hosts) if by_mpirun else ()
        return Cleanup(given.force, given.dry_run, each, given.mpirun or ("mpirun",))
    if given.force:
        raise UsageError("--force: is for --cleanup")
    if given.per_node is not None and given.ranks is not None:
        raise UsageError("-n and --devices-per-node: give one of them")
    if given.per_node is not None and not hosts:
        given.ranks = given.per_node
    if not after:
        raise UsageError(f"no script to run: put it after `--`, as in {EXAMPLE}")
    if given.ranks is None and not hosts:
        given.ranks = max(1, 0 if given.no_gpu else visible_gpus())
    ranks = slots(hosts) if given.ranks is None else given.ranks
    _check_room(ranks, hosts)
    _check_restarts(given, ranks)
    variables = _variables(given)
    _check_shards(ranks, variables)
    if given.preload:
        _check_preload(given, after[0], by_mpirun)
    return Options(
        ranks=ranks,
        command=_command(after, given.python_interpreter),
        variables=variables,
        output_on_all_devices=given.output_on_all_devices,
        log_on_all_devices=given.log_on_all_devices,
        dry_run=given.dry_run,
        hosts=place(hosts, ranks) if by_mpirun else (),
        mpirun=given.mpirun or ("mpirun",),
        pin=Pin.MEMORY if given.pin_memory else Pin.CORES if given.pin else None,
        max_restarts=given.max_restarts or 0,
        min_ranks=given.min_ranks,
        room=hosts if by_mpirun else (),
        wanted_ranks=ranks,
        preload=given.preload,
    )


def split(argv: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """What is before the first `--`, whether there is one, and what is after it."""
    words = list(argv)
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]


class Parser(argparse.ArgumentParser):
    """Says what is wrong as a UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"tarantella {_version()}")
        parser.exit()


def _version() -> str:
    try:
        return metadata.version("tarantella")
    except metadata.PackageNotFoundError:
        return "(run from its sources, not installed)"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tarantella",
        usage="tarantella -n N [options] -- SCRIPT [args...]\n       tarantella verify --help",
        description="Starts N ranks of SCRIPT, on this node or on several hosts, and ends them together when one fails.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-n", dest="ranks", metavar="N", type=_ranks,
        help=f"number of ranks to start, 1 to {MAX_RANKS}; without, one for each GPU of this node, or one")
    add("--devices-per-node", "--n-per-node", "--npernode", dest="per_node", metavar="N", type=_ranks,
        help="number of ranks on each host, in place of -n and of what the hostfile says")
    add("--hostfile", metavar="FILE",
        help="start the ranks on the hosts that FILE names, one per line as `name`, `name slots=2` or `name:2`, by mpirun")
    add("--hosts", metavar="LIST", help="the same with a list: a:2,b:2")
    add("--mpirun", metavar="COMMAND", type=_mpirun,
        help="what starts ranks on hosts: Open MPI's or MPICH's mpirun, with options of its own (default: mpirun)")
    add("-x", dest="environment", metavar="KEY=VALUE", nargs="+", action="extend", default=[],
        type=_assignment, help="set variables in the environment of every rank; wins over the options below")
    add("--output-on-all-devices", action="store_true",
        help="show the output of every rank, each line with its rank, instead of rank 0's alone")
    add("--no-gpu", "--no-gpus", action="store_true", help="hide all GPUs from the ranks")
    add("--pin-to-socket", dest="pin", action="store_true",
        help="bind each rank to the cores of a socket (NUMA node) of its machine; ranks take the sockets in turn")
    add("--pin-memory-to-socket", dest="pin_memory", action="store_true",
        help="the same, and let it use no memory but the socket's")
    add("--log-level", metavar="LEVEL", type=_one_of(LOG_LEVELS), help=f"one of {', '.join(LOG_LEVELS)}")
    add("--log-on-all-devices", action="store_true", help="log on every rank, instead of rank 0 alone")
    add("--fusion-threshold", metavar="KB", type=_fusion_threshold,
        help="size of a bucket of gradients in kilobytes (or with K, M or G); 0: no fusion, inf: one bucket")
    add("--autotune", action="store_true",
        help="choose the size of a bucket by trying some in the first steps of training, and keep it for the next run")
    add("--gradient-dtype", metavar="DTYPE", type=_one_of(GRADIENT_DTYPES),
        help=f"in which gradients are sent: one of {', '.join(GRADIENT_DTYPES)} (as they are)")
    add("--max-restarts", metavar="K", type=_restarts,
        help="after a failure, start all ranks again, K times at most; the script goes on from its last checkpoint")
    add("--min-ranks", metavar="M", type=_ranks,
        help="with --max-restarts: go on without killed ranks, or without hosts that are gone, while M ranks are left")
    add("--reproducible", metavar="V", type=power_of_two,
        help="the same bits on any number of ranks that divides V: batches are cut into V shards (a power of two, such as 8)")
    add("--timeout", metavar="SECONDS", type=_seconds, help="the longest that a rank waits for another one")
    add("--timeline", metavar="FILE", type=_timeline, help="write a timeline of the run to FILE")
    add("--preload", metavar="MODULES", type=_modules, default=(),
        help="import these once, such as tensorflow,keras,tarantella.keras, and make the ranks forks of the process that did: "
        "they start sooner and share its memory; the modules must start no threads or devices")
    add("--python-interpreter", metavar="COMMAND",
        help="runs SCRIPT, such as `valgrind python` (default for a .py file: the one that runs tarantella); "
        "empty: SCRIPT runs itself")
    add("--dry-run", action="store_true",
        help="print what every rank would run and its environment; start nothing")
    add("--cleanup", action="store_true",
        help="start nothing: end your processes that are left over from jobs whose launcher has gone, on all hosts given")
    add("--force", action="store_true", help="with --cleanup: by SIGKILL")
    add("--version", action=_Version, nargs=0, help="print the version")
    return parser


def _ranks(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_RANKS):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {MAX_RANKS}, not {text!r}")
    return int(text)


def _restarts(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def _mpirun(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("must be a command, not an empty one")
    return words


def _hosts(given: argparse.Namespace) -> tuple[Host, ...]:
    if given.hostfile is not None and given.hosts is not None:
        raise UsageError("--hostfile and --hosts: give one of them")
    hosts: tuple[Host, ...] = ()
    if given.hostfile is not None:
        hosts = read_hostfile(given.hostfile)
    elif given.hosts is not None:
        hosts = read_hosts(given.hosts)
    if hosts:
        return hosts if given.per_node is None else tuple(Host(host.name, given.per_node) for host in hosts)
    if given.mpirun is not None:
        raise UsageError("--mpirun: give the hosts to start ranks on, too, with --hostfile or --hosts")
    return ()


def _check_room(ranks: int, hosts: Sequence[Host]) -> None:
    room = slots(hosts)
    if hosts and ranks > room:
        raise UsageError(f"-n: {ranks} ranks, but the hosts take {room}: give them more slots, or start fewer ranks")
    if ranks > MAX_RANKS:
        raise UsageError(f"the hosts take {room} ranks, and a job has at most {MAX_RANKS}: say with -n how many to start")


def _check_restarts(given: argparse.Namespace, ranks: int) -> None:
    if given.min_ranks is None:
        return
    if given.max_restarts is None:
        raise UsageError("--min-ranks: is for --max-restarts")
    if given.min_ranks > ranks:
        raise UsageError(f"--min-ranks: {given.min_ranks} ranks, but the job has {ranks}")


def _check_shards(ranks: int, variables: Mapping[str, str]) -> None:
    """Ranks share the shards of reproducible training evenly."""
    try:
        shards = reproducible({**os.environ, **variables})
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from None
    if shards is not None and shards % ranks != 0:
        raise UsageError(
            f"{counted(ranks, 'rank')} cannot share {counted(shards, 'shard')} (--reproducible, TNT_REPRODUCIBLE) evenly: "
            f"{_divisors(shards)} can"
        )


def _check_preload(given: argparse.Namespace, script: str, by_mpirun: bool) -> None:
    """Ranks can be forks of the launcher."""
    if by_mpirun:
        raise UsageError("--preload: is for ranks on this node; mpirun starts each rank by itself")
    if given.python_interpreter is not None or not script.endswith(".py"):
        raise UsageError(f"--preload: {script!r} is to be run by another program, and the ranks are forks of the launcher: "
                         "give a .py file and no --python-interpreter, or leave --preload out")  # fmt: skip


def _divisors(shards: int) -> str:
    powers = [str(1 << i) for i in range(min(shards, MAX_RANKS).bit_length())]
    return " or ".join(filter(None, [", ".join(powers[:-1]), powers[-1]]))


def power_of_two(text: str) -> str:
    """A number of shards, for argparse."""
    try:
        shards = reproducible({"TNT_REPRODUCIBLE": text})
    except InvalidArgumentError:
        shards = None
    if shards is None:
        raise argparse.ArgumentTypeError(f"must be a power of two, such as 8, not {text!r}")
    return text


def _modules(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise argparse.ArgumentTypeError(f"must be names of modules, such as tensorflow,keras, not {text!r}")
    return names


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    if key in variables.OF_LAUNCHER:
        raise argparse.ArgumentTypeError(f"{text!r}: {key} is set by the launcher for each rank")
    return key, value


def _one_of(choices: Sequence[str]) -> Callable[[str], str]:
    """Takes one of the words, in whatever case."""

    def chosen(text: str) -> str:
        found = next((choice for choice in choices if choice.lower() == text.lower()), None)
        if found is None:
            raise argparse.ArgumentTypeError(f"must be one of {', '.join(choices)}, not {text!r}")
        return found

    return chosen


def _fusion_threshold(text: str) -> str:
    try:
        kilobytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be {error}, not {text!r}") from None
    return text


def _seconds(text: str) -> str:
    if not re.fullmatch(DECIMAL, text) or not 0 < float(text) <= 1e9:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return text


def _timeline(text: str) -> str:
    path = Path(text).absolute()
    if not text or os.path.isdir(path) or not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"must name a file in a folder that exists, not {text!r}")
    return str(path)


def _variables(given: argparse.Namespace) -> dict[str, str]:
    from_options = {
        "TNT_FUSION_THRESHOLD": given.fusion_threshold,
        "TNT_AUTOTUNE": "1" if given.autotune else None,
        "TNT_GRADIENT_DTYPE": given.gradient_dtype,
        "TNT_REPRODUCIBLE": given.reproducible,
        "TNT_TIMEOUT": given.timeout,
        "TNT_TIMELINE": given.timeline,
        "TNT_LOG_LEVEL": given.log_level,
        "TNT_LOG_ON_ALL_DEVICES": "1" if given.log_on_all_devices else None,
        "TNT_OUTPUT_ON_ALL_DEVICES": "1" if given.output_on_all_devices else None,
        "TNT_GPUS_PER_NODE": "0" if given.no_gpu else None,
        "CUDA_VISIBLE_DEVICES": "-1" if given.no_gpu else None,  # for programs that know nothing of ours
    }
    return {key: value for key, value in from_options.items() if value is not None} | dict(given.environment)


def _command(script_and_arguments: Sequence[str], interpreter: str | None) -> tuple[str, ...]:
    script, *arguments = script_and_arguments
    if os.path.isdir(script):
        raise UsageError(f"script {script!r} is a directory")
    if not os.path.exists(script):
        raise UsageError(f"script {script!r} does not exist")
    if interpreter is None and script.endswith(".py"):
        interpreter = sys.executable
    if not interpreter and not os.access(script, os.X_OK):
        raise UsageError(f"script {script!r} is not executable and no interpreter is to run it")
    if os.sep not in script:  # else one named "-c" were an option of the interpreter, and exec searched PATH
        script = script if interpreter and not script.startswith("-") else f"./{script}"
    if interpreter:
        return *_interpreter(interpreter), script, *arguments
    return script, *arguments


def _interpreter(text: str) -> list[str]:
    """A program, whatever its path looks like, or one with options of its own."""
    try:
        words = [text] if shutil.which(text) else shlex.split(text)
    except ValueError:  # a quotation that does not end
        words = [text]
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--python-interpreter: {(words or [text])[0]!r} is not a program that can be run")
    return words
