"""Telling ranks that wait for each other of a rank that has already gone.

While a job starts, rank 0 listens on an abstract Unix-domain socket until all ranks have joined. A rank
that ended before will never join: without a word the others would wait for a timeout, or until they are ended.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

from tarantella.launcher.environment import Meeting

RETRY = 0.1
GIVE_UP = 60.0
REFUSAL = b"error rank 0 exited with code 0 before the ranks had joined\n"


class ExitNotices:
    """Tells rank 0 of each rank that has exited. Retried, as rank 0 may not listen yet.

    If it listens no more, all ranks had joined: nobody needs the notice, and it ends with its time.
    """

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._pending: list[tuple[float, bytes]] = []
        self._next_try = 0.0

    def add(self, rank: int, code: int, now: float) -> None:
        line = f"tarantella 1 {self._meeting.token} exit {rank} {code}\n"
        self._pending.append((now + GIVE_UP, line.encode()))
        self._next_try = now

    def clear(self) -> None:
        self._pending.clear()

    def next_try(self) -> float | None:
        return self._next_try if self._pending else None

    def deliver(self, now: float) -> None:
        """Sends what is due; what cannot be sent yet is kept for the next time."""
        if not self._pending or now < self._next_try:
            return
        self._pending = [
            (until, line) for until, line in self._pending if now < until and not self._send(line)
        ]
        self._next_try = now + RETRY

    def _send(self, line: bytes) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)  # a full backlog must not hold the launcher up
            try:
                connection.connect(f"\0{self._meeting.name}")
                connection.sendall(line)
            except OSError:
                return False
        return True


class Refusal:
    """Stands in for a rank 0 that has exited without an error: tells the reason to whoever wants to join."""

    def __init__(self, meeting: Meeting, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._sockets: list[socket.socket] = []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        try:
            listener.bind(f"\0{meeting.name}")
            listener.listen(512)
        except OSError:  # something that rank 0 has started still listens there, and will answer by itself
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
        except OSError:  # it has gone again
            return
        connection.setblocking(False)
        try:
            connection.sendall(REFUSAL)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            connection.close()
            return
        # Closed only after the rank has, so that its own greeting does not fail before it has read ours.
        self._watch(connection, lambda: self._skip(connection))

    def _skip(self, connection: socket.socket) -> None:
        try:
            gone = not connection.recv(4096)
        except OSError:
            gone = True
        if gone:
            self._forget(connection)
