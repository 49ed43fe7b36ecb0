"""`tarantella --elastic`: the ranks that are left ask here for the next generation of their job, and join it.

They ask for the first one as well: ranks that are lost before they have joined are not waited for.
A rank that has lost another one leaves the job and asks. When all that run have asked, they are told their new numbers and a
new rendezvous. The launcher alone knows which ranks run, so nothing has to be agreed on. A rank that is stopped does not ask:
it is killed, and counts as lost.

A newcomer starts while the others run. It asks where the training is, and goes there through its data. When it is near, the
master has all ranks leave the job between two steps. Then all, and the newcomer, ask for the next generation.
"""

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from tarantella.environment import REFUSED, Message, elastic_address
from tarantella.launcher.base import mark
from tarantella.launcher.base.local_server import LocalServer, uid_of_peer

STOPPED = 2.0
"""Seconds for which a rank may be stopped while others ask for the next generation."""
LONGEST_LINE = 128
MOST_IN_VAIN = 5
"""So many generations of the same ranks may follow one another."""
SOON = 60.0
"""Seconds, beyond twice the patience, in which they do."""


class Process(Protocol):
    """That of a rank which runs."""

    def is_stopped(self) -> bool:
        """Whether a signal has stopped it."""

    def signal(self, number: int, alone: bool = False) -> Any:
        """Sends it a signal."""


@dataclass
class _Newcomers:
    """Those that have not joined, by their numbers."""

    asking: dict[int, tuple[str, socket.socket]] = field(default_factory=dict)
    """What they ask the master."""
    passed_on: set[str] = field(default_factory=set)
    """What the master was asked, and has not answered."""
    expected: set[int] = field(default_factory=set)
    """They were told where the others wait for them."""
    refusing: set[int] = field(default_factory=set)
    """They have found that they cannot take part."""


class Generations(LocalServer):
    """Answers the ranks that ask, until it is closed.

    Args:
        running: gives the number with which each running rank was started, and its process, here or on another host.
        numbers: gives those of the ranks of this generation, in their order, also if they do not run any more.
        form: is told the members of a new generation, and gives each the variables of its place.
        patience: seconds in which all running ranks have to ask, after the first one has. The others are killed.
    """

    def __init__(
        self,
        running: Callable[[], Mapping[int, Process]],
        numbers: Callable[[], Sequence[int]],
        form: Callable[[list[int]], Sequence[Mapping[str, str]]],
        patience: float,
        selector: selectors.BaseSelector,
    ) -> None:
        self._running, self._numbers = running, numbers
        self._form = form
        self._patience = patience
        self._waiting: dict[int, socket.socket] = {}
        self._since = 0.0
        self._has_ended = False
        self._in_vain = 0  # generations in a row of the same ranks
        self._formed_at: float | None = None
        self._refused = ""
        self._stopped: dict[int, float] = {}  # since when a rank that has not asked was seen stopped
        self._listener: socket.socket | None = None  # the master's
        self._opened_by: int | None = None  # the master, if it lets newcomers into the next generation
        self._newcomers = _Newcomers()
        super().__init__(elastic_address(mark.own_mark())[1:], 512, selector)

    def members(self) -> list[int]:
        """The numbers of the ranks of this generation that run, in the order of their ranks."""
        running = self._running()
        return [number for number in self._numbers() if number in running]

    def has_refused(self, number: int) -> bool:
        """Whether this newcomer has said that it cannot take part."""
        return number in self._newcomers.refusing

    def _serve(self, connection: socket.socket) -> None:
        if self._has_ended or uid_of_peer(connection) != os.geteuid():
            connection.close()
            return
        received = bytearray()
        self._watch(connection, selectors.EVENT_READ, lambda: self._read(connection, received))

    def _read(self, connection: socket.socket, received: bytearray) -> None:
        try:
            data = connection.recv(LONGEST_LINE)
        except OSError:
            data = b""
        received += data
        if not data or len(received) > LONGEST_LINE:
            self._has_gone(connection)
            return
        while b"\n" in received:
            line, _, rest = bytes(received).partition(b"\n")
            received[:] = rest
            number, _, message = line.decode("ascii", "replace").partition(" ")
            if number.isdigit():
                self._heed(int(number), message, connection)

    def _has_gone(self, connection: socket.socket) -> None:
        self._waiting = {number: one for number, one in self._waiting.items() if one is not connection}
        asking = self._newcomers.asking
        self._newcomers.asking = {number: one for number, one in asking.items() if one[1] is not connection}
        self._listener = None if self._listener is connection else self._listener
        self._forget(connection)

    def _heed(self, number: int, message: str, connection: socket.socket) -> None:
        kind, _, position = message.partition(" ")
        if kind == Message.JOIN:
            if number in self._numbers() and not any(one in self._numbers() for one in self._waiting):
                self._since = time.monotonic()
            if number not in (*self._numbers(), *self._newcomers.expected):
                self._reply(connection, "{}")  # the others have gone on meanwhile
                return
            self._waiting[number] = connection
            if position:
                self._opened_by = number
                self._tell(Message.READY, position)
            self.review()
        elif kind == Message.LISTEN:
            self._listener = connection
            self._newcomers.passed_on.clear()
            self._ask_master()
        elif kind == Message.WHERE and position:  # the master's answer
            self._tell(Message.WHERE, position)
        elif kind in (Message.WHERE, Message.READY):
            self._newcomers.asking[number] = (kind, connection)
            self._ask_master()
        elif kind == Message.REFUSE:
            self._newcomers.refusing.add(number)
            self._forget(connection)

    def _ask_master(self) -> None:
        """Passes on what newcomers ask. Without a master that listens they wait: the ranks are not in `fit`."""
        for kind in {kind for kind, _ in self._newcomers.asking.values()} - self._newcomers.passed_on:
            if self._listener is not None:
                self._newcomers.passed_on.add(kind)
                with suppress(OSError):  # it has gone, which the job is about to see
                    self._listener.sendall(f"{kind}\n".encode())

    def _tell(self, kind: str, position: str) -> None:
        """Answers the newcomers that ask this."""
        asking = self._newcomers.asking
        self._newcomers.passed_on.discard(kind)
        for number, (asked, connection) in list(asking.items()):
            if asked == kind:
                del asking[number]
                self._newcomers.expected |= {number} if kind == Message.READY else set()
                self._reply(connection, position)

    def _reply(self, connection: socket.socket, text: str) -> None:
        with suppress(OSError):  # it has gone, which the job is about to see
            connection.sendall(text.encode())
        self._forget(connection)

    def review(self) -> None:
        """Forms the next generation if all running ranks have asked. To be called when one has ended, and now and then."""
        running, members = self._running(), self.members()
        if not any(number in self._waiting for number in members):
            return
        if self._refused:
            for connection in self._waiting.values():
                self._reply(connection, json.dumps({REFUSED: self._refused}))
            self._waiting.clear()
            return
        newcomers = sorted(self._newcomers.expected & running.keys()) if self._opened_by in members else []
        awaited = [number for number in (*members, *newcomers) if number not in self._waiting]
        if not awaited:
            self._answer([*members, *newcomers])
            return
        now = time.monotonic()
        for number in awaited:
            process = running[number]
            if not process.is_stopped():
                self._stopped.pop(number, None)
            elif now - self._stopped.setdefault(number, now) > STOPPED:
                process.signal(signal.SIGKILL, alone=True)
            if now - self._since > self._patience:
                process.signal(signal.SIGKILL, alone=True)

    def _answer(self, members: list[int]) -> None:
        if self._is_in_vain(members):
            self.end()
            return
        places = self._form(members)
        for number, connection in self._waiting.items():
            answer = places[members.index(number)] if number in members else {}
            self._reply(connection, json.dumps(answer))  # empty: the others have gone on without this newcomer
        self._waiting.clear()
        self._stopped.clear()
        self._opened_by = None
        self._newcomers.expected.clear()
        self._ask_master()

    def _is_in_vain(self, members: list[int]) -> bool:
        """Whether these ranks have lost one another so often, though all run, that the next generation would not last either.

        As if one computes for longer than the others wait, or two hosts cannot reach each other, but the launcher both.
        """
        now = time.monotonic()
        is_same = members == list(self._numbers()) and self._opened_by is None
        soon = self._formed_at is not None and now - self._formed_at < 2 * self._patience + SOON
        self._in_vain = self._in_vain + 1 if is_same and soon else int(is_same and self._formed_at is not None)
        self._formed_at = now
        return self._in_vain > MOST_IN_VAIN

    def exited(self, number: int, code: int) -> bool:
        """The script of a rank has ended without an error. Returns whether it was the last one of this generation.

        Before the first generation the others would train without it, so none is formed.
        """
        if self._formed_at is None and number in self._numbers():
            self._refused = f"rank {number} exited with code {code} before the ranks had joined"
        return not self.members()

    def end(self) -> None:
        """The job has failed: there are no more generations, and ranks that ask hear so."""
        self._has_ended = True
        for connection in (*self._waiting.values(), *(one for _, one in self._newcomers.asking.values())):
            self._forget(connection)
        self._waiting.clear()
        self._newcomers = _Newcomers(refusing=self._newcomers.refusing)
