"""The connection between the launcher of an elastic job and its process on another host: frames over what a remote shell gives.

No call blocks: a queue keeps the bytes that cannot be written yet.
"""

import enum
import os
import select
import selectors
import struct
import time
from collections.abc import Callable

MAGIC = b"\0tarantella-host\n"
"""Precedes the first frame from the host. The launcher skips all before it, such as a greeting that the login shell prints."""
HEADER = struct.Struct("!BiI")
READ_BYTES = 64 * 1024
MAX_QUEUED = 1024 * 1024
"""With more bytes than that in a queue, output of ranks is not read on."""


class Kind(enum.IntEnum):
    """What a frame says. Its number is that of a rank, if nothing else is said. What is no data is JSON."""

    HELLO = 1
    """From the host: its port, its name, and the version of Tarantella there."""
    SETUP = 2
    """To the host: what all ranks have in common."""
    READY = 3
    """From the host: it has understood; with a text, why it cannot."""
    START = 4
    """To the host: a rank's place there, and variables of its own."""
    STARTED = 5
    """From the host: the rank's process, or why there is none."""
    SIGNAL = 6
    """To the host: a signal's number, and whether it goes to the rank alone."""
    OUTPUT = 7
    """From the host. The number is that of the rank times `STREAMS`, plus that of the stream."""
    ENDED = 8
    """From the host: exit code and signal."""
    BEAT = 9
    """From both, each second; from the host with the states of its ranks."""
    NOTICE = 10
    """From the host: what a process has told about joining. The number is that of the process."""
    OPEN = 11
    """From the host: a rank wants to talk to the launcher about the next generation. The number is that of the conversation."""
    DATA = 12
    """From both, of a conversation."""
    CLOSE = 13
    """From both: the conversation is over."""


STREAMS = 3
"""The report, stdout and stderr of a rank."""


class Link:
    """One end of the connection.

    Args:
        read, write: descriptors, which are closed with it.
        take: is given each frame: its kind, number and data.
        skips: whether bytes may come before `MAGIC`.
    """

    def __init__(self, read: int, write: int, take: Callable[[Kind, int, bytes], None], skips: bool = False) -> None:
        self._read, self._write = read, write
        self._take = take
        self._skips = skips
        self._received = bytearray()
        self._queue = bytearray()
        self._selector: selectors.BaseSelector | None = None
        self._is_paused = False
        self.is_broken = False
        self.heard = time.monotonic()
        """When something came last; now, while nothing is read."""
        for descriptor in (read, write):
            os.set_blocking(descriptor, False)

    def attach(self, selector: selectors.BaseSelector) -> None:
        """From now on a selector reads and writes."""
        self._selector = selector
        self._watch()

    def close(self) -> None:
        """To be called while the selector is open."""
        if not self.is_broken:
            self.is_broken = True
            self._watch()
            self._selector = None  # its descriptors may be others' from now on
            os.close(self._read)
            os.close(self._write)

    @property
    def is_full(self) -> bool:
        """Whether much waits to be written."""
        return len(self._queue) > MAX_QUEUED

    def pause(self, is_paused: bool) -> None:
        """Whether nothing is read for now."""
        if self._is_paused != is_paused:
            self._is_paused = is_paused
            self.heard = time.monotonic()
            self._watch()

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing came for so long. What nobody has read yet counts as well."""
        if self._is_paused or time.monotonic() - self.heard <= seconds:
            return False
        self._receive()
        return time.monotonic() - self.heard > seconds

    def send(self, kind: Kind, number: int = 0, data: bytes = b"") -> None:
        self.send_raw(HEADER.pack(kind, number, len(data)) + data)

    def send_raw(self, data: bytes) -> None:
        if not self.is_broken:
            self._queue += data
            self._flush()

    def wait(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Reads and writes until something is so, without the selector. Returns whether it is, in so many seconds."""
        deadline = time.monotonic() + seconds
        while not is_done() and not self.is_broken and (left := deadline - time.monotonic()) > 0:
            waits = select.poll()
            waits.register(self._read, select.POLLIN)
            if self._queue:
                waits.register(self._write, select.POLLOUT)
            waits.poll(left * 1000)
            self._flush()
            self._receive()
        return is_done()

    def _watch(self) -> None:
        if self._selector is None:
            return
        watched = self._selector.get_map()
        wanted = {
            self._read: (selectors.EVENT_READ, self._receive, not self.is_broken and not self._is_paused),
            self._write: (selectors.EVENT_WRITE, self._flush, not self.is_broken and bool(self._queue)),
        }
        for descriptor, (event, callback, is_wanted) in wanted.items():
            if is_wanted and descriptor not in watched:
                self._selector.register(descriptor, event, callback)
            elif not is_wanted and descriptor in watched:
                self._selector.unregister(descriptor)

    def _flush(self) -> None:
        try:
            while self._queue and not self.is_broken:
                del self._queue[: os.write(self._write, self._queue[:READ_BYTES])]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        self._watch()

    def _receive(self) -> None:
        if self.is_broken:
            return
        try:
            data = os.read(self._read, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.heard = time.monotonic()
        self._received += data
        if self._skips:
            _, magic, rest = bytes(self._received).partition(MAGIC)
            if not magic:
                del self._received[: -len(MAGIC)]
                return
            self._skips, self._received = False, bytearray(rest)
        self._take_frames()

    def _take_frames(self) -> None:
        while len(self._received) >= HEADER.size:
            kind, number, length = HEADER.unpack_from(self._received)
            end = HEADER.size + length
            if len(self._received) < end:
                return
            data = bytes(self._received[HEADER.size : end])
            del self._received[:end]
            self._take(Kind(kind), number, data)
