"""Binds ranks to the sockets of their machine, that is, its NUMA nodes.

Local ranks take the sockets in turn. Memory is local anyway where a bound thread touches it first; --pin-memory-to-socket also
forbids other memory. Processes that a rank starts inherit both.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tarantella.launcher.errors import UsageError
from tarantella.launcher.options import Options, Pin

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "ppc64le": 261, "s390x": 269}
"""The number of the system call; the C library has no function for it."""
MPOL_DEFAULT = 0
MPOL_BIND = 2


@dataclass(frozen=True)
class Socket:
    """A NUMA node and the cores of it that this process may use."""

    number: int
    cores: frozenset[int]

    def __str__(self) -> str:
        return f"socket {self.number}: cores {', '.join(map(str, sorted(self.cores)))}"


def find_sockets(root: Path = Path("/")) -> tuple[Socket, ...]:
    """The sockets with usable cores. Raises UsageError if the system does not list them."""
    usable = os.sched_getaffinity(0)
    found = []
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        cores = usable & _numbers((folder / "cpulist").read_text())
        if cores:
            found.append(Socket(int(folder.name.removeprefix("node")), frozenset(cores)))
    if not found:
        raise UsageError("--pin-to-socket: this machine does not list its sockets in /sys/devices/system/node")
    return tuple(sorted(found, key=lambda socket: socket.number))


class Pinning:
    """Which socket each local rank is bound to."""

    def __init__(self, sockets: Sequence[Socket], memory: bool) -> None:
        """memory: whether memory is bound, too. Raises UsageError if the system forbids that."""
        self._sockets = sockets
        self._memory = memory
        if memory:
            _try_memory(sockets[0])

    @staticmethod
    def from_options(options: Options) -> Pinning | None:
        """The pinning that the options ask for, on this machine; None if they ask for none. Raises UsageError."""
        return None if options.pin is None else Pinning(find_sockets(), options.pin is Pin.MEMORY)

    def socket_of(self, local_rank: int) -> Socket:
        """The socket of a local rank."""
        return self._sockets[local_rank % len(self._sockets)]

    def preparation(self, local_rank: int) -> Callable[[], None]:
        """A function that binds the rank's process, to be called between fork and exec. It loads nothing."""
        socket = self.socket_of(local_rank)
        bind = _memory_call(MPOL_BIND, [socket.number]) if self._memory else None

        def pin() -> None:
            os.sched_setaffinity(0, socket.cores)
            if bind is not None:
                bind()

        return pin


def _try_memory(socket: Socket) -> None:
    """Binds the memory of this process and undoes it. Raises UsageError if that fails."""
    if platform.machine() not in SET_MEMPOLICY:
        raise UsageError(f"--pin-memory-to-socket: not known how on {platform.machine()}: use --pin-to-socket")
    try:
        _memory_call(MPOL_BIND, [socket.number])()
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
