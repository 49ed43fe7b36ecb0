"""Notices of joining: the warning that no rank has joined, and the hint that a program of a script has taken its place.

A script that uses nothing of Tarantella runs N times, each time alone. A rank that joins sends its number to a datagram socket
of the launcher (`environment.join_address`), whatever program starts it: the report pipe may have been closed on the way. A
rank that joins through the C API says nothing: its flight record tells. A program that is not Python's is not judged at all.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from tarantella.environment import join_address
from tarantella.first_gradient import NOTICE as TRAINS
from tarantella.installation import page
from tarantella.launcher.base import mark
from tarantella.launcher.base.local_server import CREDENTIALS
from tarantella.launcher.base.words import counted

CPU_SECONDS = 60.0
"""So much a rank may compute before the launcher says that none has joined: imports and the preparation of data take some."""
INTERVAL = 1.0
"""Seconds between two looks at that."""
TICKS = os.sysconf("SC_CLK_TCK")

REMEDY = (
    f"Wrap the model with tnt.Model(model); for a custom training loop, see {page('custom-loops.md')}. "
    "Start a script that needs no other ranks without tarantella"
)
TRAINED_ALONE = 1
"""The exit code of a job in which each rank has trained, and none has joined."""


class JoinWatch:
    """Knows which processes have joined as which ranks, and what to say if none has, or if they are not those it started."""

    def __init__(self, ranks: int, selector: selectors.BaseSelector, has_joined: Callable[[], bool] = lambda: False) -> None:
        """ranks: as many as are expected to join; with 1 or 0 nothing is said. has_joined: what the flight records tell."""
        self._has_joined = has_joined
        self._ranks = ranks
        self._selector = selector
        self._next_look = time.monotonic() + INTERVAL
        self._is_over = ranks < 2
        self._joined = False
        self._trained = False
        self._processes: dict[int, int] = {}  # the first one that has joined as each rank
        self._socket: socket.socket | None = None
        if self._is_over:
            return
        self._socket = notice_socket()
        if self._socket is None:  # then nothing can be known
            self._is_over = True
            return
        selector.register(self._socket, selectors.EVENT_READ, self._on_notice)

    def close(self) -> None:
        """To be called while the selector is open."""
        if self._socket is not None:
            if self._socket.fileno() in self._selector.get_map():
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def early_warning(self, pids: Iterable[int]) -> str | None:
        """The warning for ranks that run, once a rank has computed for long; None mostly."""
        now = time.monotonic()
        if self._is_over or now < self._next_look:
            return None
        self._next_look = now + INTERVAL
        if max(map(cpu_seconds, pids), default=0.0) < CPU_SECONDS or self._has_joined():
            return None
        self._is_over = True
        return (
            f"warning: no rank has joined the job, {CPU_SECONDS:g} s of computing after its start. Unless the program joins "
            f"later, each of the {counted(self._ranks, 'rank')} does all the work alone. {REMEDY}"
        )

    def last_warning(self) -> str | None:
        """The warning when all ranks have ended well; None mostly."""
        self._on_notice()  # the last ones may not have been read
        if self.trained_alone():
            return (
                f"wrap the model with tnt.Model(model): each of the {counted(self._ranks, 'rank')} has trained its own model, "
                f"and nothing was synchronised, so the job has failed (exit code {TRAINED_ALONE}). For a custom training loop, "
                f"see {page('custom-loops.md')}. Start a script that needs no other ranks without tarantella"
            )
        if self._is_over or self._has_joined():
            return None
        return (
            f"warning: no rank has joined the job: the program ran {self._ranks} times, each rank alone, and nothing was "
            f"synchronised. {REMEDY}"
        )

    def trained_alone(self) -> bool:
        """Whether ranks have trained, and none has joined the others."""
        return self._trained and not self._joined and not self._has_joined()

    def hint(self, pids: Mapping[int, int]) -> str | None:
        """The hint beside the error of a failed job; None mostly. pids: the process that was started for each rank."""
        self._on_notice()
        for rank, process in sorted(self._processes.items()):
            if pids.get(rank, process) != process:
                return (
                    f"process {process} had joined as rank {rank}, and was started by the script (process {pids[rank]}). If "
                    "the script itself is to be that rank, it must join first: call tnt.get_rank() before it starts programs "
                    "that use Tarantella, or start them without the variables TNT_*"
                )
        return None

    def _on_notice(self) -> None:
        if self._socket is not None:
            for notice, process in notices(self._socket):
                self.take(notice, process)

    def take(self, notice: bytes, process: int) -> None:
        """A process has given this notice, here or on another host."""
        if notice == TRAINS:
            self._trained = True
            return
        self._is_over = self._joined = True
        if notice.isdigit():
            self._processes.setdefault(int(notice), process)


def notice_socket() -> socket.socket | None:
    """The one for notices to this launcher; None if a process left over from an earlier start has it."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel tells who has sent a notice
    try:
        found.bind(join_address(mark.own_mark()))
    except OSError:
        found.close()
        return None
    return found


def notices(of: socket.socket) -> Iterator[tuple[bytes, int]]:
    """Those of this user that have come, and the processes that have sent them."""
    with suppress(BlockingIOError):
        while True:
            notice, about, _, _ = of.recvmsg(64, socket.CMSG_SPACE(CREDENTIALS.size), socket.MSG_DONTWAIT)
            process, uid, _ = CREDENTIALS.unpack(about[0][2])
            if uid == os.geteuid():
                yield notice, process


def cpu_seconds(pid: int) -> float:
    """The processor time of a process and of its children that have ended; 0 if there is no such process."""
    fields = mark.state(pid)
    return sum(map(int, fields[11:15])) / TICKS
