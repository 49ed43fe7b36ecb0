"""A server on an abstract Unix-domain socket, within the launcher's selector."""

import selectors
import socket
import struct
from collections.abc import Callable

CREDENTIALS = struct.Struct("3i")
"""The pid, uid and gid of a process, as the kernel tells them."""


def uid_of_peer(connection: socket.socket) -> int:
    """The user whose process is at the other end."""
    _, uid, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return int(uid)


class LocalServer:
    """Listens until it is closed. A class derived from it says in `_serve` what happens to a connection."""

    def __init__(self, name: str, backlog: int, selector: selectors.BaseSelector) -> None:
        """name: of the socket, without its leading NUL. Raises OSError, as if another process has the name."""
        self._selector = selector
        self._sockets: list[socket.socket] = []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.setblocking(False)
        try:
            listener.bind(f"\0{name}")
            listener.listen(backlog)
        except OSError:
            listener.close()
            raise
        self._watch(listener, selectors.EVENT_READ, lambda: self._accept(listener))

    def close(self) -> None:
        """To be called while the selector is open."""
        for one in list(self._sockets):
            self._forget(one)

    def _serve(self, connection: socket.socket) -> None:
        raise NotImplementedError

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
        connection.setblocking(False)
        self._serve(connection)
