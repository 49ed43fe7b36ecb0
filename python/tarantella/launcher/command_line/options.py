"""The command line: a job, or a cleanup, or the one clear line that says what is wrong with it.

Everything is checked here, before any rank exists: an error that every rank would find for itself would
be printed N times, or not at all.
"""

import argparse
import difflib
import enum
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarantella import settings, vendors
from tarantella.errors import InvalidArgumentError
from tarantella.launcher.base.words import UsageError, counted
from tarantella.launcher.command_line.arguments import COMMANDS, HABITS, MAX_JOB_RANKS, MAX_RANKS, launcher_parser
from tarantella.launcher.command_line.command import EXAMPLE, MODULE_EXAMPLE, Command, parse_command
from tarantella.launcher.command_line.devices import visible_gpus
from tarantella.launcher.command_line.hosts import (
    Host,
    all_here,
    assign_ranks,
    check_names,
    read_hostfile,
    read_hosts,
    slots,
)

REMOTE_SHELL = ("ssh", "-o", "BatchMode=yes")
"""Asks for no password."""


class Pin(enum.Enum):
    """What a rank is bound to."""

    CORES = "--pin-to-cores"
    SOCKET = "--pin-to-socket"
    MEMORY = "--pin-memory-to-socket"
    NOTHING = "--no-pin"

    @property
    def option(self) -> str:
        """Which asks for it; that of memory for the socket as well."""
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
    """The command of every rank: interpreter, script, arguments."""
    variables: dict[str, str]
    """The variables that options and -x put into the environment of every rank; -x has won."""
    output_on_all_devices: bool
    log_on_all_devices: bool
    dry_run: bool
    hosts: tuple[Host, ...] = ()
    """Where mpirun, or a remote shell, starts how many of the ranks; empty where the launcher starts them all, on this node."""
    mpirun: tuple[str, ...] = ("mpirun",)
    remote_shell: tuple[str, ...] = REMOTE_SHELL
    """With `elastic`: runs a command on a host, in the place of mpirun."""
    pin: Pin | None = None
    """None: to its share of the cores, if there is one for each rank."""
    max_restarts: int = 0
    min_ranks: int | None = None
    """The smallest number of ranks that may go on after a failure; None: all."""
    all_hosts: tuple[Host, ...] = ()
    """Those that were given, with the ones that get no rank."""
    hostfile: str | None = None
    """Where they are given; it is read again before a restart, and while an elastic job runs."""
    per_node: int | None = None
    """How many ranks each host takes, whatever the hostfile says; None: as many as that says."""
    lost_hosts: frozenset[str] = frozenset()
    """Those on which a rank was killed; a restart with --min-ranks does without them."""
    requested_ranks: int = 0
    """As many as the command line asked for; a restart may have fewer."""
    preload: tuple[str, ...] = ()
    """Modules that the launcher imports for all ranks, which are its forks then; none: each rank is a program of its own."""
    may_preload: bool = False
    """Whether the launcher may choose such modules where none are named."""
    program: tuple[str, ...] = ()
    """The part of the command that a fork of the launcher runs; empty if it cannot."""
    source: bytes | None = None
    """The script, if it came from standard input."""
    is_python: bool = False
    """Whether the command is a Python program."""
    flight_recorder: Path | None = None
    """The folder that gets the ranks' flight records if the job fails."""
    elastic: bool = False
    """If ranks are lost, the others go on in the same processes, while `min_ranks` are left."""
    replacements: int = 0
    """With `elastic`: how many ranks may start in the places of lost ones."""
    max_ranks: int = 0
    """With `elastic`: how many ranks may run when slots were added to the hostfile; 0: no rank starts in these."""
    keep_going: bool = False
    """If a rank fails, the others are not ended."""
    prefix: bool = True
    """Whether lines of output say their rank."""
    grace: float | None = None
    """Seconds that ranks get after SIGTERM; None: as many as fit what they do with it."""


def parse(argv: Sequence[str]) -> Options | Cleanup:
    """Checks a command line. Raises UsageError; SystemExit for --help and --version."""
    before, dashes, after = split(argv)
    given, extra = launcher_parser().parse_known_args(list(map(_usual, before)))
    if extra:
        raise UsageError(_why_not(extra[0], before[0], dashes))
    hosts = _hosts(given)
    by_mpirun = bool(given.mpirun) or not all_here(hosts) or bool(given.max_ranks and given.remote_shell)
    if given.cleanup:
        each = tuple(Host(host.name, 1) for host in hosts) if by_mpirun else ()
        return Cleanup(given.force, given.dry_run, each, given.mpirun or ("mpirun",))
    if given.force:
        raise UsageError("--force: is for --cleanup")
    if not after:
        raise UsageError(f"no script to run: put it after `--`, as in {EXAMPLE}")
    ranks = _ranks(given, hosts)
    _check_slots(ranks, hosts, by_mpirun)
    _check_failures(given, ranks, by_mpirun)
    _check_elastic(given, hosts, by_mpirun)
    variables = _variables(given)
    _check_shards(ranks, variables)
    command = parse_command(after, given.python_interpreter)
    if by_mpirun and command.source is not None:
        gives = (
            "a remote shell gives no rank standard input" if given.elastic else "mpirun gives standard input to rank 0 alone"
        )
        raise UsageError(f"-: {gives}: put the script into a file that all hosts have")
    if given.preload:
        _check_preload(given, command, after, by_mpirun)
    return Options(
        ranks=ranks,
        command=command.words,
        variables=variables,
        output_on_all_devices=given.output_on_all_devices or given.no_prefix,
        log_on_all_devices=given.log_on_all_devices,
        dry_run=given.dry_run,
        hosts=assign_ranks(hosts, ranks) if by_mpirun else (),
        mpirun=given.mpirun or ("mpirun",),
        remote_shell=given.remote_shell or REMOTE_SHELL,
        pin=_pin(given),
        max_restarts=given.max_restarts or 0,
        min_ranks=given.min_ranks,
        all_hosts=hosts,
        hostfile=given.hostfile,
        per_node=given.per_node,
        requested_ranks=ranks,
        preload=given.preload,
        may_preload=ranks > 1 and not (by_mpirun or given.preload or given.no_preload or visible_gpus()),
        program=command.program,
        source=command.source,
        is_python=command.is_python,
        flight_recorder=given.flight_recorder,
        elastic=given.elastic,
        replacements=given.replacements or 0,
        max_ranks=given.max_ranks or 0,
        keep_going=given.keep_going,
        prefix=not given.no_prefix,
        grace=given.grace,
    )


def _why_not(word: str, first: str, dashes: bool) -> str:
    """What is wrong with the first word before `--` that is no option. first: of all words."""
    if word in ("-m", "-"):
        example = MODULE_EXAMPLE if word == "-m" else "tarantella -n 4 -- - < train.py"
        return f"{word!r}: put `--` before it, as in {example}"
    if word.startswith("-"):
        return f"unknown option {word!r} (options go before `--`; see tarantella --help)"
    if dashes:
        return f"unexpected word {word!r} before `--`"
    meant = difflib.get_close_matches(first, COMMANDS, n=1)
    if meant and not os.path.exists(first):
        return f"unknown command {first!r}: did you mean tarantella {meant[0]}?"
    return f"{word!r} is no option: put `--` before the script, as in {EXAMPLE}"


def _usual(word: str) -> str:
    """An option as the parser spells it."""
    option, equals, value = word.partition("=")
    return HABITS.get(option, option) + equals + value


def _pin(given: argparse.Namespace) -> Pin | None:
    if sum((given.pin_to_cores, given.pin or given.pin_memory, given.no_pin)) > 1:
        raise UsageError("--pin-to-cores, --pin-to-socket and --no-pin: give one of them")
    asked = {Pin.CORES: given.pin_to_cores, Pin.MEMORY: given.pin_memory, Pin.SOCKET: given.pin, Pin.NOTHING: given.no_pin}
    return next((pin for pin, is_asked in asked.items() if is_asked), None)


def _ranks(given: argparse.Namespace, hosts: Sequence[Host]) -> int:
    """How many ranks are asked for."""
    if given.per_node is not None and given.ranks is not None:
        raise UsageError("-n and --devices-per-node: give one of them")
    if given.ranks is not None:
        return int(given.ranks)
    if hosts:
        return slots(hosts)
    return int(given.per_node or max(1, 0 if given.no_gpu else visible_gpus()))


def split(argv: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    """The words before the first `--`, whether there is one, and the words after it."""
    words = list(argv)
    if "--" not in words:
        return words, False, []
    at = words.index("--")
    return words[:at], True, words[at + 1 :]


def _hosts(given: argparse.Namespace) -> tuple[Host, ...]:
    if given.hostfile is not None and given.hosts is not None:
        raise UsageError("--hostfile and --hosts: give one of them")
    if given.hostfile is not None:
        return read_hostfile(given.hostfile, given.per_node)
    if given.hosts is not None:
        return read_hosts(given.hosts, given.per_node)
    if given.mpirun is not None:
        raise UsageError("--mpirun: give the hosts to start ranks on, too, with --hostfile or --hosts")
    return ()


def _check_slots(ranks: int, hosts: Sequence[Host], by_mpirun: bool) -> None:
    available = slots(hosts)
    if hosts and ranks > available:
        raise UsageError(f"-n: {ranks} ranks, but the hosts take {available}: give them more slots, or start fewer ranks")
    if not by_mpirun and ranks > MAX_RANKS:
        raise UsageError(f"-n: {ranks} ranks, but one machine takes {MAX_RANKS} at most: name more with --hosts")
    if ranks > MAX_JOB_RANKS:
        raise UsageError(
            f"the hosts take {available} ranks, and a job has at most {MAX_JOB_RANKS}: say with -n how many to start"
        )


def _check_failures(given: argparse.Namespace, ranks: int, by_mpirun: bool) -> None:
    if given.keep_going and (by_mpirun or given.max_restarts):
        other = "mpirun ends the job when a rank fails" if by_mpirun else "--max-restarts starts all ranks again"
        raise UsageError(f"--keep-going: is for ranks on this machine that go on without one; {other}")
    if given.replacements is not None and not given.elastic:
        raise UsageError("--replacements: is for --elastic; --max-restarts starts all ranks again")
    _check_growth(given, ranks, by_mpirun)
    if given.min_ranks is None:
        return
    if given.max_restarts is None and not given.elastic:
        raise UsageError("--min-ranks: is for --max-restarts and --elastic")
    if given.min_ranks > ranks:
        raise UsageError(f"--min-ranks: {given.min_ranks} ranks, but the job has {ranks}")


def _check_growth(given: argparse.Namespace, ranks: int, several: bool) -> None:
    """several: whether ranks may be on several hosts."""
    if given.max_ranks is None:
        return
    if not given.elastic:
        raise UsageError("--max-ranks: is for --elastic; other jobs keep the number of ranks with which they began")
    if given.hostfile is None:
        raise UsageError("--max-ranks: the job grows when slots are added to its hostfile: give it one with --hostfile")
    if given.max_ranks < ranks:
        raise UsageError(f"--max-ranks: {counted(given.max_ranks, 'rank')} at most, but the job begins with {ranks}")
    if not several and given.max_ranks > MAX_RANKS:
        raise UsageError(f"--max-ranks: {given.max_ranks} ranks, but one machine takes {MAX_RANKS} at most")


def _check_elastic(given: argparse.Namespace, hosts: Sequence[Host], several: bool) -> None:
    """several: whether ranks are to be on several hosts."""
    if given.remote_shell is not None and not (given.elastic and several):
        raise UsageError("--remote-shell: is for --elastic on several hosts; other jobs there are started by mpirun")
    if not given.elastic:
        return
    if given.keep_going:
        raise UsageError("--elastic: lets fit go on without lost ranks; --keep-going is for C")
    if given.mpirun:
        raise UsageError("--elastic: mpirun ends the job when a rank is lost: leave --mpirun out (ssh starts the ranks then), "
                         "or use --max-restarts")  # fmt: skip
    if not several:
        return
    check_names(hosts)
    for name, is_given in {"--max-restarts": given.max_restarts, "--flight-recorder": given.flight_recorder}.items():
        if is_given:
            raise UsageError(f"--elastic: {name} does not go with it on several hosts: leave one of them out")


def _check_shards(ranks: int, variables: Mapping[str, str]) -> None:
    """Ranks share the shards of reproducible training evenly."""
    shards = settings.reproducible({**os.environ, **variables})
    if shards is not None and shards % ranks != 0:
        raise UsageError(
            f"{counted(ranks, 'rank')} cannot share {counted(shards, 'shard')} (--reproducible, TNT_REPRODUCIBLE) evenly: "
            f"{_divisors(shards)} can"
        )


def _check_preload(given: argparse.Namespace, command: Command, words: Sequence[str], by_mpirun: bool) -> None:
    """Ranks can be forks of the launcher."""
    if given.no_preload:
        raise UsageError("--preload and --no-preload: give one of them")
    if by_mpirun:
        starter = "a remote shell" if given.elastic else "mpirun"
        raise UsageError(f"--preload: is for ranks on this node; {starter} starts each rank by itself")
    if not command.program:
        raise UsageError(f"--preload: {words[0]!r} is to be run by another program, and the ranks are forks of the launcher: "
                         "give a .py file or -m and a module, no options for Python, or leave --preload out")  # fmt: skip


def _divisors(shards: int) -> str:
    powers = [str(1 << i) for i in range(min(shards, MAX_JOB_RANKS).bit_length())]
    return " or ".join(filter(None, [", ".join(powers[:-1]), powers[-1]]))


def _variables(given: argparse.Namespace) -> dict[str, str]:
    """The variables that options and -x put into the environment of ranks. Raises UsageError if they contradict one another."""
    if given.autotune and given.fusion_threshold is not None:
        raise UsageError("--autotune and --fusion-threshold: give one of them")
    on_all = {"output": given.output_on_all_devices, "log": given.log_on_all_devices}
    if any(on_all.values()):
        on_all |= {what: True for what in os.environ.get("TNT_ON_ALL_RANKS", "").split(",") if what}
    from_options = {
        "TNT_FUSION_THRESHOLD": "autotune" if given.autotune else given.fusion_threshold,
        "TNT_GRADIENT_DTYPE": given.gradient_dtype,
        "TNT_REPRODUCIBLE": given.reproducible,
        "TNT_TIMEOUT": given.timeout,
        "TNT_TIMELINE": given.timeline,
        "TNT_LOG_LEVEL": given.log_level,
        "TNT_ON_ALL_RANKS": ",".join(what for what, wanted in on_all.items() if wanted) or None,
        "TNT_HOROVOD": "1" if given.horovod else None,
        "TNT_GPUS_PER_NODE": "0" if given.no_gpu else None,
        **dict.fromkeys(vendors.HIDING, "-1" if given.no_gpu else None),  # for programs that know nothing of ours
    }
    found = {key: value for key, value in from_options.items() if value is not None} | dict(given.environment)
    try:
        settings.check({**os.environ, **found})
    except InvalidArgumentError as error:
        raise UsageError(str(error)) from None
    return found
