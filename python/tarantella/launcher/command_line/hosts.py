"""The hosts of a job, from a hostfile or from --hosts: their names, and how many ranks each takes.

A hostfile has one host per line, as `name`, `name slots=2` or `name:2`. Empty lines and comments after # are ignored. The slots
of a host that is named again add up.
"""

import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarantella.launcher.base.words import UsageError, counted

HOST = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)(:(?P<count>[0-9]{1,6}))?")
SLOTS = re.compile(r"slots=(?P<count>[0-9]{1,6})")
SHOWN = 4
"""How many hosts the start message names."""


@dataclass(frozen=True)
class Host:
    """A machine and its number of slots."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


@dataclass(frozen=True)
class Slot:
    """The place of a rank."""

    host: str
    """Its name; empty if the launcher itself starts the rank."""
    index: int
    """Among those of the host, from 0."""


def read_hostfile(path: str, per_node: int | None = None) -> tuple[Host, ...]:
    """The hosts of a file. Raises UsageError with the number of the line that makes no sense.

    per_node: how many ranks each takes, whatever the file says.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise UsageError(f"--hostfile: cannot read {path!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--hostfile: {path!r} is not a text file") from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = re.sub(r"\s*=\s*", "=", line.partition("#")[0]).split()
        if words:
            hosts.append(_host(words, f"{path}:{number}"))
    if not hosts:
        raise UsageError(f"--hostfile: {path!r} names no host")
    return _merged(hosts, per_node)


def read_hosts(text: str, per_node: int | None = None) -> tuple[Host, ...]:
    """The hosts of a list such as a:2,b:2. Raises UsageError. per_node: how many ranks each takes, whatever the list says."""
    return _merged([_host([word.strip()], "--hosts") for word in text.split(",")], per_node)


def assign_ranks(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """The hosts that so many ranks need, each with its number of ranks. The first host is filled first."""
    used = []
    for host in hosts:
        taken = min(host.slots, ranks)
        ranks -= taken
        if taken:
            used.append(Host(host.name, taken))
    return tuple(used)


def host_of(hosts: Sequence[Host], rank: int) -> str:
    """The name of the host that a rank is on."""
    for host in hosts:
        if rank < host.slots:
            return host.name
        rank -= host.slots
    raise ValueError(f"the hosts have no slot for {rank + 1} more ranks")


def slots(hosts: Iterable[Host]) -> int:
    """The number of slots of all hosts."""
    return sum(host.slots for host in hosts)


def each_slot(hosts: Iterable[Host]) -> list[Slot]:
    """The slots of all hosts, one after another."""
    return [Slot(host.name, index) for host in hosts for index in range(host.slots)]


def check_names(hosts: Iterable[Host]) -> None:
    """Checks that ranks on other hosts can find these. Raises UsageError."""
    own = next((host.name for host in hosts if host.name in ("localhost", "127.0.0.1")), None)
    if own is not None:
        raise UsageError(f"--elastic: ranks on other hosts cannot find {own!r}: give this host the name that they know")


def all_here(hosts: Iterable[Host]) -> bool:
    """Whether all of them are this machine."""
    own = socket.gethostname()
    return {host.name for host in hosts} <= {"localhost", "127.0.0.1", own, own.partition(".")[0]}


def describe(hosts: Sequence[Host]) -> str:
    """How many ranks are on which host: 4 ranks on 2 hosts (a: 2, b: 2)."""
    named = [f"{host.name}: {host.slots}" for host in hosts[:SHOWN]] + ["..."] * (len(hosts) > SHOWN)
    return f"{counted(slots(hosts), 'rank')} on {counted(len(hosts), 'host')} ({', '.join(named)})"


def _host(words: Sequence[str], where: str) -> Host:
    host = HOST.fullmatch(words[0])
    if host is None:
        raise UsageError(f"{where}: {words[0]!r} is no host: write `name`, `name slots=2` or `name:2`")
    count = host["count"]
    for word in words[1:]:
        match = SLOTS.fullmatch(word)
        if match is None:
            raise UsageError(f"{where}: unexpected {word!r}: write a host as `name`, `name slots=2` or `name:2`")
        if count is not None:
            raise UsageError(f"{where}: {host['name']!r} is given its number of ranks twice")
        count = match["count"]
    if count is not None and int(count) == 0:
        raise UsageError(f"{where}: {host['name']!r} with 0 ranks: leave it out")
    return Host(host["name"], int(count or 1))


def _merged(hosts: Iterable[Host], per_node: int | None) -> tuple[Host, ...]:
    found: dict[str, int] = {}
    for host in hosts:
        found[host.name] = found.get(host.name, 0) + host.slots
    return tuple(Host(name, per_node or count) for name, count in found.items())
