"""The options of the command line: their names, their help, and what each value may be."""

import argparse
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tarantella import _native, variables
from tarantella.errors import InvalidArgumentError
from tarantella.launcher.base.words import UsageError

MAX_RANKS = 512
"""Of one machine, whose ranks share memory (src/comm/shm/world.hpp)."""
MAX_JOB_RANKS = 4096
"""Of all machines."""
LONGEST_GRACE = 86400.0
"""Seconds of a day."""
COMMANDS = ("doctor", "status", "explain", "verify", "simulate", "horovodrun")
HABITS = {"-np": "-n", "--nproc_per_node": "--devices-per-node", "--nproc-per-node": "--devices-per-node"}
"""Options as mpirun and torchrun spell them."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of ending the process. Its help begins with examples."""

    examples = ""

    def format_help(self) -> str:
        return self.examples + super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


EXAMPLES = """\
Examples:
  tarantella -n 4 -- train.py --epochs 3            four ranks on this machine
  tarantella -n 4 -- -m package.train               the same of a module; `-` reads the script from standard input
  tarantella --hosts node1:4,node2:4 -- train.py    eight ranks on two machines

"""


def launcher_parser() -> argparse.ArgumentParser:
    """The parser of everything before `--`."""
    parser = Parser(
        prog="tarantella",
        usage=f"tarantella -n N [options] -- SCRIPT [args...]\n       tarantella {'|'.join(COMMANDS)} --help",
        description="Starts N ranks of SCRIPT, on this node or on several hosts, and ends them together when one fails. SCRIPT "
        "is a .py file or another program, or what may follow `python`: -m MODULE, -c TEXT, or - for standard input.",
        allow_abbrev=False,
    )
    parser.examples = EXAMPLES
    _add_placement(parser)
    _add_process(parser)
    _add_training(parser)
    _add_failures(parser)
    _add_elastic(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="print what every rank would run and its environment; start nothing"
    )
    parser.add_argument("--version", action="version", version=f"tarantella {_native.version()}", help="print the version")
    return parser


def _add_placement(parser: argparse.ArgumentParser) -> None:
    """Where ranks run."""
    add = parser.add_argument
    add(
        "-n",
        dest="ranks",
        metavar="N",
        type=rank_count,
        help=f"number of ranks to start, {MAX_RANKS} on a machine and {MAX_JOB_RANKS} in all (also -np); default: one for "
        "each GPU of this node, or one",
    )
    add(
        "--devices-per-node",
        "--n-per-node",
        "--npernode",
        dest="per_node",
        metavar="N",
        type=rank_count_of_machine,
        help="number of ranks on each host, instead of -n and of the slots in the hostfile (also --nproc-per-node)",
    )
    add(
        "--hostfile",
        metavar="FILE",
        help="start the ranks on the hosts that FILE names, one per line as `name`, `name slots=2` or `name:2`, by mpirun "
        "(with --elastic: by ssh)",
    )
    add("--hosts", metavar="LIST", help="the same as --hostfile, as a list: a:2,b:2")
    add(
        "--mpirun",
        metavar="COMMAND",
        type=_command,
        help="command that starts ranks on hosts: mpirun of Open MPI or MPICH, optionally with arguments (default: mpirun)",
    )
    add(
        "--remote-shell",
        metavar="COMMAND",
        type=_command,
        help="with --elastic: command that runs another one on a host, optionally with arguments (default: ssh -o "
        "BatchMode=yes); with --max-ranks also where all hosts are this machine so far",
    )
    add("--no-gpu", "--no-gpus", action="store_true", help="hide all GPUs from the ranks")
    add(
        "--pin-to-cores",
        action="store_true",
        help="bind each rank to its share of the cores of its machine; so it is by default, unless there are more ranks than "
        "cores, or GPUs",
    )
    add(
        "--pin-to-socket",
        dest="pin",
        action="store_true",
        help="bind each rank to the cores of a socket (NUMA node) of its machine; ranks take the sockets in turn",
    )
    add(
        "--pin-memory-to-socket",
        dest="pin_memory",
        action="store_true",
        help="the same, and allow it only the memory of that socket",
    )
    add("--no-pin", action="store_true", help="bind ranks to nothing: where other programs use the machine")


def _add_process(parser: argparse.ArgumentParser) -> None:
    """The flags for a rank's process: its program, its GPUs and its output."""
    add = parser.add_argument
    add(
        "-x",
        dest="environment",
        metavar="KEY=VALUE",
        nargs="+",
        action="extend",
        default=[],
        type=_assignment,
        help="set variables in the environment of every rank; overrides the other options",
    )
    add(
        "--output-on-all-devices",
        action="store_true",
        help="show the output of every rank, not only rank 0's; each line begins with its rank",
    )
    add("--no-prefix", action="store_true", help="the same without [rank N] before the lines")
    add("--log-level", metavar="LEVEL", type=setting("TNT_LOG_LEVEL"), help="DEBUG, INFO, WARNING or ERROR")
    add("--log-on-all-devices", action="store_true", help="log on every rank, not only on rank 0")
    add(
        "--preload",
        metavar="MODULES",
        type=_modules,
        default=(),
        help="import these once, such as tensorflow,keras,tarantella.keras, and fork the ranks from that process: "
        "they start sooner and share its memory; the modules must start no threads or devices (default: TensorFlow, if the "
        "job runs on this machine, the script imports TensorFlow first, and there is no GPU)",
    )
    add("--no-preload", action="store_true", help="start each rank as a process that imports everything itself")
    add(
        "--python-interpreter",
        metavar="COMMAND",
        help="runs SCRIPT, such as `valgrind python` (default for a .py file: the one that runs tarantella); "
        "empty: SCRIPT runs itself",
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    """How ranks train and wait for each other."""
    add = parser.add_argument
    add(
        "--fusion-threshold",
        metavar="KB",
        type=setting("TNT_FUSION_THRESHOLD"),
        help="size of a bucket of gradients in kilobytes (or with K, M or G); 0: no fusion, inf: one bucket, autotune: "
        "as --autotune",
    )
    add(
        "--autotune",
        action="store_true",
        help="try several bucket sizes in the first steps of training, and keep the best one for the next run",
    )
    add(
        "--gradient-dtype",
        metavar="DTYPE",
        type=setting("TNT_GRADIENT_DTYPE"),
        help="type in which gradients are sent: bfloat16, float16, or none (as they are)",
    )
    add(
        "--reproducible",
        metavar="V",
        type=setting("TNT_REPRODUCIBLE"),
        help="give bitwise equal results on any number of ranks that divides V: cut batches into V shards (a power of two)",
    )
    add("--timeout", metavar="SECONDS", type=setting("TNT_TIMEOUT"), help="longest time that a rank waits for another rank")
    add(
        "--horovod",
        action="store_true",
        help="let `import horovod` in the script import tarantella.horovod: scripts for Horovod run unchanged",
    )
    add("--timeline", metavar="FILE", type=_timeline, help="write a timeline of the run to FILE")


def _add_failures(parser: argparse.ArgumentParser) -> None:
    """The flags for failures."""
    add = parser.add_argument
    add(
        "--max-restarts",
        metavar="K",
        type=_restarts,
        help="after a failure, restart all ranks, at most K times; the script resumes from its last checkpoint",
    )
    add(
        "--min-ranks",
        metavar="M",
        type=rank_count,
        help="with --max-restarts: continue without killed ranks or lost hosts while at least M ranks are left; with "
        "--elastic: the same without a restart (default: 1)",
    )
    add(
        "--keep-going",
        action="store_true",
        help="if a rank fails, do not end the others: for C programs that continue without it (TNT_ERRORS_RETURN)",
    )
    add(
        "--grace",
        metavar="SECONDS",
        type=_seconds,
        help="after SIGTERM, the time that ranks have to save and end before they are killed (default: 30 under Slurm, or if "
        "the script handles SIGTERM, as fit with tnt.callbacks.Checkpoint does; else 1.5)",
    )
    add(
        "--flight-recorder",
        metavar="FOLDER",
        type=_folder,
        help="if the job fails, write the last calls of each rank there; `tarantella explain FOLDER` tells which rank fell "
        "out of step",
    )
    add(
        "--cleanup",
        action="store_true",
        help="start nothing; on all given hosts, end your processes that are left over from jobs whose launcher is gone",
    )
    add("--force", action="store_true", help="with --cleanup: use SIGKILL")


def _add_elastic(parser: argparse.ArgumentParser) -> None:
    """The flags for jobs that go on without lost ranks, and take new ones."""
    add = parser.add_argument
    add(
        "--elastic",
        action="store_true",
        help="if ranks are lost while fit runs, the others continue with the same step, in the same processes; on several "
        "hosts, ssh starts the ranks, not mpirun",
    )
    add(
        "--replacements",
        metavar="K",
        type=_restarts,
        help="with --elastic: start a rank in the place of each one that was lost, K times at most; it runs the script, goes "
        "through the data to the step that the others have reached, and joins them",
    )
    add(
        "--max-ranks",
        metavar="N",
        type=rank_count,
        help="with --elastic: the hostfile may change while the job runs, and a rank starts in each slot that was added, as "
        "long as fewer than N run; it joins the others as a replacement does",
    )


def setting(name: str) -> Callable[[str], str]:
    """A type for argparse: text that the TNT_ variable of this name takes."""

    def checked(text: str) -> str:
        try:
            canonical = _native.setting(name, text)
        except InvalidArgumentError as error:
            raise argparse.ArgumentTypeError(f"must be {str(error).partition(': expected ')[2]}, not {text!r}") from None
        if not canonical:
            raise argparse.ArgumentTypeError("must not be empty")
        return text

    return checked


def rank_count(text: str) -> int:
    """A type for argparse: a number of ranks."""
    return _whole(text, MAX_JOB_RANKS)


def rank_count_of_machine(text: str) -> int:
    """A type for argparse: a number of ranks on one machine."""
    return _whole(text, MAX_RANKS)


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _restarts(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= LONGEST_GRACE:
        raise argparse.ArgumentTypeError(f"must be seconds from 0 to {LONGEST_GRACE:g}, not {text!r}")
    return seconds


def _command(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if not words:
        raise argparse.ArgumentTypeError("must be a command, not an empty one")
    return words


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


def _timeline(text: str) -> str:
    path = Path(text).absolute()
    if not text or os.path.isdir(path) or not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"must name a file in a folder that exists, not {text!r}")
    return str(path)


def _folder(text: str) -> Path:
    path = Path(text).absolute()
    if not text or (path.exists() and not path.is_dir()):
        raise argparse.ArgumentTypeError(f"must name a folder, not {text!r}")
    return path
