"""Binds ranks to cores of their machine: each to a share of its own, or to a socket, that is, a NUMA node.

Local ranks take the sockets in turn. Memory is local anyway where a bound thread touches it first; --pin-memory-to-socket also
forbids other memory. Processes that a rank starts inherit both.
"""

import ctypes
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tarantella import variables
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.devices import visible_gpus
from tarantella.launcher.command_line.options import Options, Pin

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 269}
"""The number of the system call; the C library has no function for it."""
MPOL_DEFAULT = 0
MPOL_BIND = 2


@dataclass(frozen=True)
class Place:
    """Cores that this process may use: those of a NUMA node, if it has a number, or any."""

    cores: frozenset[int]
    socket: int | None = None

    def __str__(self) -> str:
        cores = f"core{'s' if len(self.cores) > 1 else ''} {', '.join(map(str, sorted(self.cores)))}"
        return cores if self.socket is None else f"socket {self.socket}: {cores}"


def find_shares(ranks: int, root: Path = Path("/")) -> tuple[Place, ...]:
    """The usable cores, divided among so many ranks: neighbours, and hardware threads of one core, stay together.

    Raises:
        UsageError: there are more ranks than cores.
    """
    usable = os.sched_getaffinity(0)
    if ranks > len(usable):
        raise UsageError(f"--pin-to-cores: {ranks} ranks cannot have cores of their own, of {len(usable)} here: leave it out")
    node_of_core = {core: node for node, cores in _nodes(root) for core in cores}

    def place_of(core: int) -> tuple[int, int, int]:
        siblings = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        first = min(_numbers(siblings.read_text())) if siblings.exists() else core
        return node_of_core.get(core, 0), first, core

    in_order = sorted(usable, key=place_of)
    borders = [len(in_order) * rank // ranks for rank in range(ranks + 1)]
    return tuple(Place(frozenset(in_order[begin:end])) for begin, end in pairwise(borders))


def find_sockets(root: Path = Path("/")) -> tuple[Place, ...]:
    """The sockets with usable cores. Raises UsageError if the system does not list them."""
    usable = os.sched_getaffinity(0)
    found = [Place(frozenset(usable & cores), node) for node, cores in _nodes(root) if usable & cores]
    if not found:
        raise UsageError("--pin-to-socket: this machine does not list its sockets in /sys/devices/system/node")
    return tuple(found)


def _nodes(root: Path) -> list[tuple[int, set[int]]]:
    """The NUMA nodes by number, each with its cores."""
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    return sorted((int(folder.name.removeprefix("node")), _numbers((folder / "cpulist").read_text())) for folder in folders)


class Pinning:
    """Which cores each local rank is bound to.

    Attributes:
        is_asked_for: whether a user did so.
        variables: for the ranks.
    """

    def __init__(self, places: Sequence[Place], memory: bool, is_asked_for: bool = True) -> None:
        """memory: whether memory is bound to the place's socket, too. Raises UsageError if the system forbids that."""
        self._places = places
        self._memory = memory
        self.is_asked_for = is_asked_for
        cores = sorted({core for place in places for core in place.cores})
        self.variables = {} if is_asked_for else {variables.CORES: ",".join(map(str, cores))}
        if memory:
            _try_memory(places[0])

    @staticmethod
    def from_options(options: Options, ranks_here: int) -> "Pinning | None":
        """The pinning that the options ask for, on this machine; None for none. Raises UsageError.

        Args:
            ranks_here: how many ranks run on this machine.
        """
        if options.pin is None:
            return Pinning(find_shares(ranks_here), memory=False, is_asked_for=False) if _pays(options, ranks_here) else None
        if options.pin is Pin.NOTHING:
            return None
        places = find_shares(ranks_here) if options.pin is Pin.CORES else find_sockets()
        return Pinning(places, options.pin is Pin.MEMORY)

    def place_of(self, local_rank: int) -> Place:
        """Where a local rank runs."""
        return self._places[local_rank % len(self._places)]

    def preparation(self, local_rank: int) -> Callable[[], None]:
        """A function that binds the rank's process, to be called between fork and exec. It loads nothing."""
        place = self.place_of(local_rank)
        bind = _memory_call(MPOL_BIND, _nodes_of(place)) if self._memory else None

        def pin() -> None:
            os.sched_setaffinity(0, place.cores)
            if bind is not None:
                bind()

        return pin


def _pays(options: Options, ranks: int) -> bool:
    """Whether ranks are bound to shares of the cores where nobody has asked for it.

    Ranks with GPUs are not: which cores are near which GPU, the shares do not tell. Nor are those that shall have more threads,
    nor any where the system allows it to nobody, as some containers do.
    """
    try:
        usable = os.sched_getaffinity(0)
        os.sched_setaffinity(0, usable)
    except OSError:
        return False
    environment, cores = {**os.environ, **options.variables}, len(usable)
    threads = environment.get("TF_NUM_INTRAOP_THREADS", "")
    has_more = threads.isdecimal() and int(threads) > max(1, cores // ranks)
    return 1 < ranks <= cores and not has_more and not visible_gpus(environment)


def _nodes_of(place: Place) -> list[int]:
    return [] if place.socket is None else [place.socket]


def _try_memory(place: Place) -> None:
    """Binds the memory of this process and undoes it. Raises UsageError if that fails."""
    if platform.machine() not in SET_MEMPOLICY:
        raise UsageError(f"--pin-memory-to-socket: not known how on {platform.machine()}: use --pin-to-socket")
    try:
        _memory_call(MPOL_BIND, _nodes_of(place))()
        _memory_call(MPOL_DEFAULT, [])()
    except OSError as error:
        raise UsageError(
            f"--pin-memory-to-socket: the system does not bind memory: {error.strerror} (a container needs CAP_SYS_NICE); "
            "use --pin-to-socket"
        ) from None


def _memory_call(mode: int, nodes: Sequence[int]) -> Callable[[], None]:
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    words = max(nodes, default=0) // bits + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // bits] |= 1 << node % bits
    libc = ctypes.CDLL(None, use_errno=True)
    number = SET_MEMPOLICY[platform.machine()]
    most = words * bits + 1 if nodes else 0  # the system looks at one bit less

    def call() -> None:
        if libc.syscall(ctypes.c_long(number), ctypes.c_int(mode), mask if nodes else None, ctypes.c_ulong(most)) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))

    return call


def _numbers(text: str) -> set[int]:
    """The numbers in a list such as 0-3,8."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers
