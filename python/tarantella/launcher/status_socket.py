"""The socket on which a launcher answers `tarantella status`: who connects gets one JSON object, if it is the same user.

Nothing is read from the other side, and nothing waits for it: an answer is sent as fast as it is taken.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import socket
import struct
from collections.abc import Callable
from typing import Any

PREFIX = "tarantella-status-"
MAX_CONNECTIONS = 16
"""More are refused, so that nobody can make the launcher run out of descriptors."""
_CREDENTIALS = struct.Struct("3i")


def uid_of_peer(connection: socket.socket) -> int:
    """The user whose process is at the other end."""
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)


class StatusSocket:
    """Answers with what `describe` returns, until it is closed."""

    def __init__(self, pid: int, describe: Callable[[], dict[str, Any]], selector: selectors.BaseSelector) -> None:
        """pid: by which the user names the job."""
        self._describe = describe
        self._selector = selector
        self._sockets: list[socket.socket] = []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        listener.bind(f"\0{PREFIX}{pid}-{secrets.token_hex(4)}")
        listener.listen(MAX_CONNECTIONS)
        self._watch(listener, selectors.EVENT_READ, lambda: self._accept(listener))

    def close(self) -> None:
        """To be called while the selector is open."""
        for one in list(self._sockets):
            self._forget(one)

    def _watch(self, one: socket.socket, event: int, callback: Callable[[], None]) -> None:
        self._sockets.append(one)
        self._selector.register(one, event, callback)

    def _forget(self, one: socket.socket) -> None:
        self._sockets.remove(one)
        self._selector.unregister(one)
        one.close()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # it has gone
            return
        if uid_of_peer(connection) != os.geteuid() or len(self._sockets) > MAX_CONNECTIONS:
            connection.close()
            return
        connection.setblocking(False)
        answer = bytearray(json.dumps(self._describe()).encode())
        self._watch(connection, selectors.EVENT_WRITE, lambda: self._send(connection, answer))

    def _send(self, connection: socket.socket, answer: bytearray) -> None:
        try:
            del answer[: connection.send(answer)]
        except BlockingIOError:
            return
        except OSError:  # it does not want to know any more
            answer.clear()
        if not answer:
            self._forget(connection)
