"""The output of ranks, in whole lines, written without ever blocking the launcher.

A line of one rank never contains text of another rank.
"""

import errno
import os
import selectors
import stat
from collections import deque
from collections.abc import Callable, Iterable

MAX_LINE = 64 * 1024
"""A longer line is cut, so that a rank cannot fill the launcher's memory."""
MAX_QUEUED = 1024 * 1024
"""Beyond this, ranks block until the launcher's output is read, as they would without a launcher."""
WRITE_AT_ONCE = 4096
"""A pipe that polls as writable takes at least this much (PIPE_BUF)."""
STDOUT, STDERR = 1, 2


class Unsplit:
    """Passes data on as it is, in the place of a `LineSplitter`."""

    def feed(self, data: bytes) -> list[bytes]:
        return [data] if data else []

    def finish(self) -> list[bytes]:
        return []


class LineSplitter:
    """Turns data into lines. Of a line that carriage returns redraw, only the last state is kept."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        *whole, partial = (self._partial + data).split(b"\n")
        lines = [_last_state(line) for line in whole]
        self._partial = _last_state(partial) + (b"\r" if partial.endswith(b"\r") else b"")
        if len(self._partial) > MAX_LINE:
            lines += self.finish()
        return lines

    def finish(self) -> list[bytes]:
        """The incomplete line at the end of the stream."""
        rest, self._partial = _last_state(self._partial), b""
        return [rest] if rest else []


def _last_state(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Stream:
    """The end to read of a pipe or terminal that a rank writes to. Calls `deliver` with every line, or with what is there."""

    def __init__(
        self, descriptor: int, deliver: Callable[[bytes], None], *, pausable: bool = False, as_is: bool = False
    ) -> None:
        os.set_blocking(descriptor, False)
        self.pausable = pausable
        self._descriptor = descriptor
        self._ended = False
        self._deliver = deliver
        self._selector: selectors.BaseSelector | None = None  # which watches it now
        self._splitter = Unsplit() if as_is else LineSplitter()

    def watch(self, selector: selectors.BaseSelector) -> None:
        """A selector reads it until its end, or until `pause`."""
        if self._selector is None and not self._ended:
            self._selector = selector
            selector.register(self._descriptor, selectors.EVENT_READ, self._serve)

    def pause(self) -> None:
        """Leaves in the pipe what comes; the rank blocks when that is full."""
        if self._selector is not None:
            self._selector.unregister(self._descriptor)
            self._selector = None

    def _serve(self) -> None:
        if self.read() == 0:  # closed by the rank, which need not have ended
            self.pause()

    def read(self) -> int:
        """Reads once. Returns the bytes read: 0 at the end of the pipe, -1 if there is nothing just now."""
        try:
            data = os.read(self._descriptor, MAX_LINE)
        except BlockingIOError:
            return -1
        except OSError as error:
            if error.errno != errno.EIO:  # how a terminal ends that nobody has open any more
                raise
            data = b""
        self._ended = not data
        for line in self._splitter.feed(data):
            self._deliver(line)
        return len(data)

    def finish(self) -> None:
        """Reads what the pipe still holds, and closes it.

        Does not wait for the end of the pipe: a process that left its session may keep it open for ever.
        """
        self.pause()
        left = MAX_QUEUED  # the most a pipe can hold
        while left > 0 and (taken := self.read()) > 0:
            left -= taken
        for line in self._splitter.finish():
            self._deliver(line)
        self.close()

    def close(self) -> None:
        """Closes it without a look at what is left."""
        self.pause()
        os.close(self._descriptor)


def pause_or_resume(streams: Iterable[Stream], is_paused: bool, selector: selectors.BaseSelector) -> None:
    """Leaves output in its pipes for now, or reads it again, where that may be."""
    for stream in streams:
        if stream.pausable and is_paused:
            stream.pause()
        elif stream.pausable:
            stream.watch(selector)


class Console:
    """Everything the launcher prints while ranks run, first in, first out, stdout and stderr in one queue.

    A blocked write would keep the launcher from seeing a rank fail or a Ctrl-C, and the terminal is not
    ours to make non-blocking. So little is written at a time, and only when it is known to fit.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bytearray]] = deque()
        self._size = 0
        self._registered: int | None = None
        self._broken: set[int] = set()
        self.lost = False
        """Whether output was lost, though somebody may want to read it."""

    @property
    def full(self) -> bool:
        return self._size > MAX_QUEUED

    def message(self, text: str) -> None:
        """A message of the launcher itself."""
        self.write(STDERR, f"tarantella: {text}\n".encode(errors="backslashreplace"))

    def announce(self, text: str) -> None:
        """A message, which is written when this returns, as `drain` does."""
        self.message(text)
        self.drain()

    def write(self, descriptor: int, text: bytes) -> None:
        if descriptor in self._broken:
            return
        if not self._queue or self._queue[-1][0] != descriptor:
            self._queue.append((descriptor, bytearray()))
        self._queue[-1][1].extend(text)
        self._size += len(text)

    def watch(self, selector: selectors.BaseSelector) -> None:
        """Lets a selector call write_some when the head of the queue can be written."""
        wanted = self._queue[0][0] if self._queue else None
        if wanted == self._registered:
            return
        if self._registered is not None:
            selector.unregister(self._registered)
        if wanted is not None:
            selector.register(wanted, selectors.EVENT_WRITE, self.write_some)
        self._registered = wanted

    def write_some(self) -> None:
        descriptor, text = self._queue[0]
        try:
            written = os.write(descriptor, text[:WRITE_AT_ONCE])
        except BlockingIOError:  # another process made the terminal non-blocking: try later
            return
        except OSError as error:  # the training goes on
            self._broken.add(descriptor)
            written = len(text)
            if not _reader_gone(descriptor, error):
                self.lost = True
                name = {STDOUT: "standard output", STDERR: "standard error"}[descriptor]
                self.message(f"cannot write to {name}: {error.strerror}; what was to come there from now on is lost")
        del text[:written]
        self._size -= written
        if not text:
            self._queue.popleft()

    def drain(self) -> None:
        """Writes everything, however long it takes. A selector given to `watch` must not be used any more."""
        self._registered = None
        with selectors.PollSelector() as selector:
            while self._queue:
                selector.register(self._queue[0][0], selectors.EVENT_WRITE)
                selector.select()
                selector.unregister(self._queue[0][0])
                self.write_some()


def _reader_gone(descriptor: int, error: OSError) -> bool:
    """Whether nobody wants the output any more: a pipe without a reader, as of `| head`, or a terminal that was closed."""
    return error.errno == errno.EPIPE or (error.errno == errno.EIO and stat.S_ISCHR(os.fstat(descriptor).st_mode))
