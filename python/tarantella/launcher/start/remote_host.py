"""Another host of an elastic job, as the launcher sees it: a remote shell that runs our process there (`watch/host_agent.py`).

The remote shell's connection is all that there is between the two. If it breaks, or nothing comes for TNT_TIMEOUT, the host is
lost with all of its ranks, and our process there ends them.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from tarantella import _native
from tarantella.environment import elastic_address
from tarantella.launcher.base import mark
from tarantella.launcher.command_line.hosts import Host
from tarantella.launcher.start.frames import MAX_QUEUED, STREAMS, Kind, Link
from tarantella.launcher.start.process import ExitStatus, end_with_parent
from tarantella.launcher.start.remote_rank import RemoteRank
from tarantella.launcher.start.talks import Talks

ENDS_WITHIN = 3.0
"""Seconds in which our process on a host has ended its ranks, after the launcher has closed the connection."""
BYTES = 4096

Told = Callable[[bytes, int], None]
"""Is given what a process on the host has told about joining, and the process."""


class RemoteHost:
    """The connection to a host.

    Args:
        host: its name and its number of ranks.
        command: runs our process there.
        setup: all that its ranks have in common but their number.

    Attributes:
        port: at which rank 0 can listen there.
        has_answered: whether our process there has.
        is_ready: whether ranks can start there.
        refusal: why it cannot take part; empty while nothing is known.
        has_changed: whether a rank may have ended since this was set to False.
    """

    def __init__(self, host: Host, command: Sequence[str], setup: Mapping[str, Any]) -> None:
        self.name = host.name
        self._setup = {**setup, "ranks": host.slots}
        self.port = 0
        self.has_answered = False
        self.refusal = ""
        self.is_ready = self.has_changed = False
        self.lost = ""
        """Why it is; empty while it is not."""
        self._ranks: dict[int, RemoteRank] = {}
        self._answers: dict[int, dict[str, Any]] = {}  # to START
        self._selector: selectors.BaseSelector | None = None
        self._told: Told = lambda _notice, _process: None
        self.shell = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at a terminal is the launcher's
            preexec_fn=partial(end_with_parent, os.getpid(), signal.SIGTERM),
        )
        assert self.shell.stdin is not None and self.shell.stdout is not None and self.shell.stderr is not None
        read, write = os.dup(self.shell.stdout.fileno()), os.dup(self.shell.stdin.fileno())
        self.shell.stdout.close()
        self.shell.stdin.close()
        self.errors = self.shell.stderr.fileno()
        self._link = Link(read, write, self._take, skips=True)
        self._talks = Talks(self._link)

    def attach(self, selector: selectors.BaseSelector, told: Told) -> None:
        """From now on a selector serves the connection."""
        self._selector, self._told = selector, told
        self._link.attach(selector)

    def wait_until_ready(self, seconds: float) -> bool:
        """Returns whether it is. `refusal` tells why not, if our process there has said so."""
        self._link.wait(lambda: self.has_answered, seconds)
        self._link.wait(lambda: self.is_ready or bool(self.refusal), seconds if self.has_answered else 0)
        return self.is_ready

    def start(self, number: int, place: int, variables: Mapping[str, str], as_is: bool, seconds: float) -> RemoteRank:
        """Starts a rank there. Raises OSError.

        Args:
            number: of the rank.
            place: its number among those of the host.
            variables: of its own.
            as_is: as in `Pipes`.
            seconds: in which it has to be there.
        """
        data = json.dumps({"place": place, "variables": dict(variables)}).encode()
        self._link.send(Kind.START, number, data)
        if not self._link.wait(lambda: number in self._answers, seconds):
            raise OSError(f"{self.name} does not answer")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise OSError(answer["error"])
        self._ranks[number] = rank = RemoteRank(number, answer["pid"], self.name, self._link.send, as_is)
        return rank

    @property
    def had_ranks(self) -> bool:
        """Whether a rank has started there."""
        return bool(self._ranks)

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended."""
        return self._link.is_broken

    def beat(self) -> None:
        """Tells it that the launcher is there."""
        self._link.send(Kind.BEAT)

    def look(self, patience: float) -> None:
        """To be called each second. patience: seconds of silence after which it is lost, as by a refusal."""
        if self.lost:
            return
        behind = sum(rank.behind for rank in self._ranks.values())
        self._link.pause(behind > MAX_QUEUED)
        self.beat()
        if self.refusal:
            self._lose(self.refusal)
        elif self._link.is_broken:
            self._lose("the connection to it has ended")
        elif self._link.is_silent(patience):
            self._lose(f"it has not answered for {patience:g} s")

    def close(self) -> None:
        """Closes the connection, which ends all that runs there. To be called while the selector is open."""
        self._lose("the launcher has ended")
        for rank in self._ranks.values():
            rank.drop(self._selector)

    def wait(self) -> str:
        """Waits until the remote shell has ended, after the connection was closed. Returns what it has said last."""
        with suppress(subprocess.TimeoutExpired):
            self.shell.wait(ENDS_WITHIN)
        if self.shell.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.shell.pid, signal.SIGKILL)
            self.shell.wait()
        said = b""
        os.set_blocking(self.errors, False)
        with suppress(BlockingIOError):
            said = os.read(self.errors, BYTES)
        assert self.shell.stderr is not None
        self.shell.stderr.close()
        return said.decode(errors="replace").strip()

    def _lose(self, why: str) -> None:
        if self.lost:
            return
        self.lost, self.has_changed = why, True
        self._link.close()
        self._talks.close()
        for rank in self._ranks.values():
            rank.ended(ExitStatus(signal=signal.SIGKILL, lost=f"{self.name}: {why}"))

    def _take(self, kind: Kind, number: int, data: bytes) -> None:
        rank = self._ranks.get(number)
        if kind == Kind.OUTPUT and (rank := self._ranks.get(number // STREAMS)) is not None:
            rank.write(number % STREAMS, data, self._selector)
            self._link.pause(rank.behind > MAX_QUEUED)
        elif kind == Kind.ENDED and rank is not None:
            rank.ended(ExitStatus(**json.loads(data)))
            self.has_changed = True
        elif kind == Kind.BEAT:
            for each, (is_stopped, handles_term) in json.loads(data).items():
                if int(each) in self._ranks:
                    self._ranks[int(each)].told(is_stopped, handles_term)
        elif kind == Kind.OPEN:
            self._open_talk(number)
        elif kind in (Kind.DATA, Kind.CLOSE):
            self._talks.say(number, data)
        elif kind == Kind.NOTICE:
            self._told(data, number)
        elif kind == Kind.STARTED:
            self._answers[number] = json.loads(data)
        elif kind == Kind.READY:
            self.is_ready, self.refusal = not data, data.decode()
        elif kind == Kind.HELLO:
            hello = json.loads(data)
            self.port, self.has_answered, own = hello["port"], True, _native.version()
            if hello["version"] == own:
                self._link.send(Kind.SETUP, 0, json.dumps(self._setup).encode())
            else:
                self.refusal = f"it has Tarantella {hello['version']}, and this host {own}: install one version"

    def _open_talk(self, number: int) -> None:
        """A conversation of a rank with `Generations` goes on here, with the socket that ranks of this host talk to."""
        assert self._selector is not None  # ranks are started after it is known
        talk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        talk.setblocking(False)
        try:
            talk.connect(elastic_address(mark.own_mark()))
        except OSError:  # there are no more generations
            talk.close()
            self._link.send(Kind.CLOSE, number)
            return
        self._talks.add(number, talk, self._selector)
