"""Conversations of ranks with the launcher about the next generation, over the link between a host and the launcher."""

import selectors
import socket
from functools import partial

from tarantella.launcher.start.frames import Kind, Link

BYTES = 4096


class Talks:
    """One end of them: each has a socket here, and goes on at the other end of the link.

    Args:
        link: carries what they say.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._sockets: dict[int, tuple[socket.socket, selectors.BaseSelector]] = {}

    def add(self, number: int, one: socket.socket, selector: selectors.BaseSelector) -> None:
        """A conversation begins. selector: tells when its socket has something to say."""
        self._sockets[number] = one, selector
        selector.register(one, selectors.EVENT_READ, partial(self._read, number))

    def say(self, number: int, data: bytes) -> None:
        """The words of the other end; none: it has nothing more to say."""
        if number not in self._sockets:
            return
        if not data:
            self._end(number)
            return
        try:
            self._sockets[number][0].sendall(data)
        except OSError:  # nobody listens any more
            self._end(number)
            self._link.send(Kind.CLOSE, number)

    def close(self) -> None:
        """To be called while the selector is open."""
        for number in list(self._sockets):
            self._end(number)

    def _read(self, number: int) -> None:
        if number not in self._sockets:  # it has ended since the selector saw it
            return
        try:
            data = self._sockets[number][0].recv(BYTES)
        except OSError:
            data = b""
        self._link.send(Kind.DATA if data else Kind.CLOSE, number, data)
        if not data:
            self._end(number)

    def _end(self, number: int) -> None:
        one, selector = self._sockets.pop(number)
        selector.unregister(one)
        one.close()
