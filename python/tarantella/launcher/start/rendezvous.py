"""Notices about ranks that exit while the job is joining.

While a job starts, rank 0 listens on an abstract Unix-domain socket, or over TCP, until all ranks have joined. A rank that has
exited will never join: without a notice the others would wait until the timeout.
"""

import os
import selectors
import socket
from contextlib import suppress

from tarantella.launcher.base.local_server import LocalServer, uid_of_peer
from tarantella.launcher.start.environment import Rendezvous

RETRY = 0.1
GIVE_UP = 60.0
CONNECTS_WITHIN = 0.2
"""Seconds: over TCP the launcher waits for an answer."""
REFUSAL = b"error rank 0 exited with code 0 before the ranks had joined\n"


class ExitNotices:
    """Notifies rank 0 of each rank that has exited. Retries, because rank 0 may not listen yet.

    If rank 0 has stopped listening, all ranks have joined and the notice expires.
    """

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        self._pending: list[tuple[float, bytes]] = []
        self._next_try = 0.0

    def add(self, rank: int, code: int, now: float) -> None:
        line = f"tarantella 1 {self._rendezvous.token} exit {rank} {code}\n"
        self._pending.append((now + GIVE_UP, line.encode()))
        self._next_try = now

    def clear(self) -> None:
        self._pending.clear()

    def next_try(self) -> float | None:
        return self._next_try if self._pending else None

    def deliver(self, now: float) -> None:
        """Sends the notices that are due; keeps those that cannot be sent yet."""
        if not self._pending or now < self._next_try:
            return
        self._pending = [(until, line) for until, line in self._pending if now < until and not self._send(line)]
        self._next_try = now + RETRY

    def _send(self, line: bytes) -> bool:
        if (address := self._rendezvous.address()) is not None:
            with suppress(OSError), socket.create_connection(address, CONNECTS_WITHIN) as connection:
                connection.sendall(line)
                return True
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)  # a full backlog must not block the launcher
            try:
                connection.connect(f"\0{self._rendezvous.name}")
                if uid_of_peer(connection) != os.geteuid():  # has taken the name, and must not learn the token
                    return False
                connection.sendall(line)
            except OSError:
                return False
        return True


class Refusal(LocalServer):
    """Listens in place of a rank 0 that has exited without an error, and refuses ranks that want to join."""

    def __init__(self, rendezvous: Rendezvous, selector: selectors.BaseSelector) -> None:
        """Raises OSError if a child of rank 0 still listens there: it answers itself."""
        super().__init__(rendezvous.name, 512, selector)

    def _serve(self, connection: socket.socket) -> None:
        try:
            connection.sendall(REFUSAL)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
            return
        # Closed after the rank's end, so that the rank's own message does not fail before it has read this one.
        self._watch(connection, selectors.EVENT_READ, lambda: self._skip(connection))

    def _skip(self, connection: socket.socket) -> None:
        try:
            gone = not connection.recv(4096)
        except OSError:
            gone = True
        if gone:
            self._forget(connection)
