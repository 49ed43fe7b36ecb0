"""Notices about ranks that exit while the job is joining.

While a job starts, rank 0 listens on an abstract Unix-domain socket until all ranks have joined. A rank that has exited will
never join: without a notice the others would wait until the timeout.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
from collections.abc import Callable

from tarantella.launcher.environment import Rendezvous

RETRY = 0.1
GIVE_UP = 60.0
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
        self._pending = [
            (until, line) for until, line in self._pending if now < until and not self._send(line)
        ]
        self._next_try = now + RETRY

    def _send(self, line: bytes) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)  # a full backlog must not block the launcher
            try:
                connection.connect(f"\0{self._rendezvous.name}")
                if not _same_user(connection):  # has taken the name, and must not learn the token
                    return False
                connection.sendall(line)
            except OSError:
                return False
        return True


def _same_user(connection: socket.socket) -> bool:
    """Whether the process that listens at the other end is this user's."""
    credentials = struct.Struct("3i")  # pid, uid and gid
    _, uid, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return bool(uid == os.geteuid())


class Refusal:
    """Listens in place of a rank 0 that has exited without an error, and refuses ranks that want to join."""

    def __init__(self, rendezvous: Rendezvous, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._sockets: list[socket.socket] = []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        try:
            listener.bind(f"\0{rendezvous.name}")
            listener.listen(512)
        except OSError:  # a child of rank 0 still listens there and answers itself
            listener.close()
            return
        self._watch(listener, lambda: self._answer(listener))

    def close(self) -> None:
        for one in list(self._sockets):
            self._forget(one)

    def _watch(self, one: socket.socket, callback: Callable[[], None]) -> None:
        self._sockets.append(one)
        self._selector.register(one, selectors.EVENT_READ, callback)

    def _forget(self, one: socket.socket) -> None:
        self._sockets.remove(one)
        self._selector.unregister(one)
        one.close()

    def _answer(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the rank has gone
            return
        connection.setblocking(False)
        try:
            connection.sendall(REFUSAL)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
            return
        # Closed after the rank's end, so that the rank's own message does not fail before it has read this one.
        self._watch(connection, lambda: self._skip(connection))

    def _skip(self, connection: socket.socket) -> None:
        try:
            gone = not connection.recv(4096)
        except OSError:
            gone = True
        if gone:
            self._forget(connection)
