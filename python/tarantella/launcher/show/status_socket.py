"""The socket on which a launcher answers `tarantella status`: who connects gets one JSON object, if it is the same user.

Nothing is read from the other side, and nothing waits for it: an answer is sent as fast as it is taken.
"""

import json
import os
import secrets
import selectors
import socket
from collections.abc import Callable
from typing import Any

from tarantella.launcher.base.local_server import LocalServer, uid_of_peer

PREFIX = "tarantella-status-"
MAX_CONNECTIONS = 16
"""More are refused, so that nobody can make the launcher run out of descriptors."""


class StatusSocket(LocalServer):
    """Answers with what `describe` returns, until it is closed."""

    def __init__(self, pid: int, describe: Callable[[], dict[str, Any]], selector: selectors.BaseSelector) -> None:
        """pid: by which the user names the job."""
        self._describe = describe
        super().__init__(f"{PREFIX}{pid}-{secrets.token_hex(4)}", MAX_CONNECTIONS, selector)

    def _serve(self, connection: socket.socket) -> None:
        if uid_of_peer(connection) != os.geteuid() or len(self._sockets) > MAX_CONNECTIONS:
            connection.close()
            return
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
