"""A rank on another host, which the launcher sees as it sees one of its own (`RankProcess`)."""

import json
import os
import selectors
from collections.abc import Callable

from tarantella.launcher.start.frames import STREAMS, Kind
from tarantella.launcher.start.process import ExitStatus, Pipes


class RemoteRank:
    """A started rank.

    Args:
        number, pid: of the rank, there.
        host: its name.
        send: sends a frame to the process on its host.
        as_is: as in `Pipes`.
    """

    memory = None

    def __init__(self, number: int, pid: int, host: str, send: Callable[[Kind, int, bytes], None], as_is: bool) -> None:
        self.number, self.pid, self.host = number, pid, host
        self._send = send
        ends = [os.pipe() for _ in range(STREAMS)]
        self.pipes = Pipes(ends[0][0], ends[1][0], ends[2][0], as_is)
        self._writes = [write for _, write in ends]
        self._kept = [bytearray() for _ in ends]  # output that its pipe does not take yet
        self._status: ExitStatus | None = None
        self._is_stopped = self._handles_term = False
        for write in self._writes:
            os.set_blocking(write, False)

    def signal(self, number: int, alone: bool = False) -> None:
        """As of `RankProcess`."""
        self._send(Kind.SIGNAL, self.number, json.dumps([number, alone]).encode())

    def handles_term(self) -> bool:
        """As of `RankProcess`, as far as its host has told."""
        return self._handles_term

    def is_stopped(self) -> bool:
        """The same."""
        return self._is_stopped

    def poll(self) -> ExitStatus | None:
        """How it ended, once all that it has written is in its pipes; None before."""
        if self._status is None or self.behind:
            return None
        for write in self._writes:
            os.close(write)
        self._writes = []
        return self._status

    @property
    def behind(self) -> int:
        """How many bytes of output its pipes do not take yet."""
        return sum(map(len, self._kept))

    def told(self, is_stopped: bool, handles_term: bool) -> None:
        """Its host has told so."""
        self._is_stopped, self._handles_term = is_stopped, handles_term

    def ended(self, status: ExitStatus) -> None:
        """It has ended so. Nothing changes that."""
        self._status = self._status or status

    def drop(self, selector: selectors.BaseSelector | None) -> None:
        """Nobody wants its output any more."""
        for stream, kept in enumerate(self._kept):
            kept.clear()
            self.write(stream, b"", selector)

    def write(self, stream: int, data: bytes, selector: selectors.BaseSelector | None) -> None:
        """It has written this. selector: tells when its pipe takes more."""
        if not self._writes:
            return
        kept, descriptor = self._kept[stream], self._writes[stream]
        kept += data
        try:
            while kept:
                del kept[: os.write(descriptor, kept)]
        except BlockingIOError:
            pass
        except OSError:  # the end to read was closed
            kept.clear()
        if selector is None:
            return
        is_watched = descriptor in selector.get_map()
        if kept and not is_watched:
            selector.register(descriptor, selectors.EVENT_WRITE, lambda: self.write(stream, b"", selector))
        elif not kept and is_watched:
            selector.unregister(descriptor)
