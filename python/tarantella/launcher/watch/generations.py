"""`tarantella --elastic`: the ranks that are left ask here for the next generation of their job, and join it.

A rank that has lost another one leaves the job and asks. When all that run have asked, they are told their new numbers and a
new rendezvous. The launcher alone knows which ranks run, so nothing has to be agreed on. A rank that is stopped does not ask:
it is killed, and counts as lost.
"""

import json
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from tarantella import variables
from tarantella.environment import elastic_address
from tarantella.launcher.base import mark
from tarantella.launcher.base.local_server import LocalServer, uid_of_peer
from tarantella.launcher.start.environment import Rendezvous

STOPPED = 2.0
"""Seconds for which a rank may be stopped while others ask for the next generation."""
LONGEST_LINE = 64


class Generations(LocalServer):
    """Answers the ranks that ask, until it is closed.

    Args:
        running: gives the number with which each running rank was started, and its process.
        formed: is told of a new generation: those numbers in the order of the new ranks, and where they meet.
        patience: seconds in which all running ranks have to ask, after the first one has. The others are killed.
    """

    def __init__(
        self,
        running: Callable[[], Mapping[int, int]],
        formed: Callable[[list[int], Rendezvous], None],
        patience: float,
        selector: selectors.BaseSelector,
    ) -> None:
        self._running = running
        self._formed = formed
        self._patience = patience
        self._waiting: dict[int, socket.socket] = {}
        self._since = 0.0
        self._has_ended = False
        self._stopped: dict[int, float] = {}  # since when a rank that has not asked was seen stopped
        super().__init__(elastic_address(mark.own_mark())[1:], 512, selector)

    def _serve(self, connection: socket.socket) -> None:
        if self._has_ended or uid_of_peer(connection) != os.geteuid():
            connection.close()
            return
        line = bytearray()
        self._watch(connection, selectors.EVENT_READ, lambda: self._read(connection, line))

    def _read(self, connection: socket.socket, line: bytearray) -> None:
        try:
            data = connection.recv(LONGEST_LINE)
        except OSError:
            data = b""
        line += data
        if not data or len(line) > LONGEST_LINE:  # it has gone
            self._waiting = {number: one for number, one in self._waiting.items() if one is not connection}
            self._forget(connection)
        elif line.endswith(b"\n") and line[:-1].isdigit():
            self._since = self._since if self._waiting else time.monotonic()
            self._waiting[int(line)] = connection
            self.review()

    def review(self) -> None:
        """Forms the next generation if all running ranks have asked. To be called when one has ended, and now and then."""
        running = self._running()
        members = sorted(number for number in self._waiting if number in running)
        if not members:
            return
        if len(members) == len(running):
            self._answer(members)
            return
        now = time.monotonic()
        for number, pid in running.items():
            if number in self._waiting:
                continue
            if mark.state(pid)[:1] != ["T"]:
                self._stopped.pop(number, None)
            elif now - self._stopped.setdefault(number, now) > STOPPED:
                self._kill(pid)
            if now - self._since > self._patience:
                self._kill(pid)

    def _kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def _answer(self, members: list[int]) -> None:
        rendezvous = Rendezvous.random()
        self._formed(members, rendezvous)
        for rank, number in enumerate(members):
            place = (rank, len(members), rank, len(members), rendezvous.name, rendezvous.token)
            answer = dict(zip(variables.OF_PLACE, map(str, place), strict=True))
            connection = self._waiting[number]
            with suppress(OSError):  # it has gone, which the job is about to see
                connection.sendall(json.dumps(answer).encode())
            self._forget(connection)
        self._waiting.clear()
        self._stopped.clear()

    def end(self) -> None:
        """The job has failed: there are no more generations, and ranks that ask hear so."""
        self._has_ended = True
        for connection in self._waiting.values():
            self._forget(connection)
        self._waiting.clear()
