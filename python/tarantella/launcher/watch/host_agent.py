"""The program `host_agent` (`own_program.py`): our process on one host of an elastic job, which starts and watches ranks there.

A remote shell starts it. It talks to the launcher through standard input and output (`frames.py`), and ends all ranks when that
connection has ended, or when nothing has come for TNT_TIMEOUT: the launcher has gone then, or is on the other side of a network
that has broken in two. What ranks say to their launcher's sockets it passes on.
"""

import itertools
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from tarantella import _native
from tarantella.environment import elastic_address
from tarantella.launcher.base import mark
from tarantella.launcher.base.local_server import LocalServer, uid_of_peer
from tarantella.launcher.base.signals import ENDING, SignalPipe
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Slot
from tarantella.launcher.command_line.options import Options, Pin
from tarantella.launcher.show.output import Stream, pause_or_resume
from tarantella.launcher.start.environment import environment_of_place, shared_environment
from tarantella.launcher.start.frames import MAGIC, STREAMS, Kind, Link
from tarantella.launcher.start.pinning import Pinning
from tarantella.launcher.start.process import RankProcess, RankSpec, RankStarter
from tarantella.launcher.start.talks import Talks
from tarantella.launcher.watch import supervision
from tarantella.launcher.watch.joining import notice_socket, notices
from tarantella.threads import usable_cores

LONGEST_SLEEP = 1.0


def main(_argv: list[str]) -> int:
    """Runs until the launcher closes the connection."""
    link = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):
        os.dup2(nothing, standard)
    os.close(nothing)
    supervision.adopt()
    with SignalPipe() as signals, selectors.PollSelector() as selector:
        agent = HostAgent(*link, selector)
        selector.register(signals.descriptor, selectors.EVENT_READ, lambda: agent.on_signals(signals.read()))
        try:
            agent.run()
        finally:
            agent.close()
    supervision.end_adopted()
    return 0


class TalkServer(LocalServer):
    """The socket at which ranks ask for the next generation: each conversation goes on with the launcher."""

    def __init__(self, link: Link, talks: Talks, selector: selectors.BaseSelector) -> None:
        super().__init__(elastic_address(mark.own_mark())[1:], 512, selector)
        self._link, self._talks = link, talks
        self._numbers = itertools.count()

    def _serve(self, connection: socket.socket) -> None:
        if uid_of_peer(connection) != os.geteuid():
            connection.close()
            return
        number = next(self._numbers)
        self._link.send(Kind.OPEN, number)
        self._talks.add(number, connection, self._selector)


class HostAgent:
    """The ranks of this host.

    Args:
        read, write: the connection to the launcher.
        selector: serves it, and the ranks.
    """

    def __init__(self, read: int, write: int, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._ranks: dict[int, tuple[RankProcess, list[Stream]]] = {}
        self._starter: RankStarter | None = None
        self._shared: dict[str, str] = {}
        self._places: dict[int, dict[str, str]] = {}  # of ranks in the job, as variables
        self._patience = self._patience_with_ranks = float("inf")
        self._next_beat = 0.0
        self._is_over = self._is_paused = False
        self._port = _reserved_port()
        self._link = Link(read, write, self._take)
        self._link.attach(selector)
        self._talks = Talks(self._link)
        self._talk_server = TalkServer(self._link, self._talks, selector)
        self._notices = notice_socket()
        if self._notices is not None:
            selector.register(self._notices, selectors.EVENT_READ, self._pass_on_notices)

    def run(self) -> None:
        """Serves the launcher until it has gone."""
        self._link.send_raw(MAGIC)
        hello = {"port": self._port.getsockname()[1], "version": _native.version(), "host": socket.gethostname()}
        self._link.send(Kind.HELLO, 0, json.dumps(hello).encode())
        while not self._is_over and not self._link.is_broken and not self._link.is_silent(self._patience):
            for key, _ in self._selector.select(LONGEST_SLEEP):
                if key.fd in self._selector.get_map():  # not if one before has unregistered it
                    key.data()
            self._reap()
            if self._link.is_full != self._is_paused:
                self._is_paused = self._link.is_full
                pause_or_resume((one for _, each in self._ranks.values() for one in each), self._is_paused, self._selector)
            if time.monotonic() >= self._next_beat:
                self._next_beat = time.monotonic() + LONGEST_SLEEP
                states = {number: (one.is_stopped(), one.handles_term()) for number, (one, _) in self._ranks.items()}
                self._link.send(Kind.BEAT, 0, json.dumps(states).encode())

    def close(self) -> None:
        """Kills the ranks."""
        for process, _ in self._ranks.values():
            process.signal(signal.SIGKILL)
        self._talk_server.close()
        self._talks.close()
        self._link.close()

    def on_signals(self, numbers: list[int]) -> None:
        """SIGCHLD needs no more than that the loop goes on."""
        self._is_over = self._is_over or any(number in ENDING for number in numbers)

    def _take(self, kind: Kind, number: int, data: bytes) -> None:
        if kind == Kind.SETUP:
            self._set_up(json.loads(data))
        elif kind == Kind.START:
            self._link.send(Kind.STARTED, number, json.dumps(self._start(number, json.loads(data))).encode())
        elif kind == Kind.SIGNAL and number in self._ranks:
            self._ranks[number][0].signal(*json.loads(data))
        elif kind in (Kind.DATA, Kind.CLOSE):
            self._talks.say(number, data)

    def _set_up(self, setup: Mapping[str, Any]) -> None:
        refusal = ""
        try:
            os.chdir(setup["folder"])
            os.environ.update(setup["environment"])
            self._patience_with_ranks = setup["patience"]
            self._starter = RankStarter(self._spec(setup), setup["ranks"])
        except OSError as error:
            refusal = f"the folder {setup['folder']!r}: {error.strerror}"
        except UsageError as error:
            refusal = str(error)
        self._link.send(Kind.READY, 0, refusal.encode())

    def _spec(self, setup: Mapping[str, Any]) -> RankSpec:
        options = Options(
            ranks=setup["ranks"],
            command=tuple(setup["command"]),
            variables=setup["variables"],
            output_on_all_devices=setup["output_on_all_devices"],
            log_on_all_devices=False,
            dry_run=False,
            pin=next((pin for pin in Pin if pin.value == setup["pin"]), None),
        )
        self._shared = shared_environment(options, os.environ, usable_cores())
        pinning = Pinning.from_options(options, options.ranks)
        self._shared |= pinning.variables if pinning is not None else {}
        return RankSpec(
            command=options.command,
            environment=lambda number, report: environment_of_place(self._shared, self._places[number], number, report),
            output_on_all_devices=options.output_on_all_devices,
            elastic=True,
            prepare=None if pinning is None else pinning.preparation,
        )

    def _start(self, number: int, told: Mapping[str, Any]) -> dict[str, Any]:
        """Starts a rank. Returns its process, or why there is none."""
        assert self._starter is not None
        self._patience = self._patience_with_ranks  # before, the launcher may wait for other hosts
        try:
            self._places[number] = told["variables"]
            process = self._starter.start(number, Slot("", told["place"]), told["variables"])
        except OSError as error:
            return {"error": str(error)}
        pipes = (process.pipes.report, process.pipes.stdout, process.pipes.stderr)
        streams = [
            Stream(pipe, partial(self._link.send, Kind.OUTPUT, number * STREAMS + i), as_is=True, pausable=i > 0)
            for i, pipe in enumerate(pipes)
            if pipe is not None
        ]
        self._ranks[number] = process, streams
        for stream in streams:
            stream.watch(self._selector)
        return {"pid": process.pid}

    def _reap(self) -> None:
        for number, (process, streams) in list(self._ranks.items()):
            status = process.poll()
            if status is None:
                continue
            del self._ranks[number]
            for stream in streams:
                stream.finish()
            if process.memory is not None:
                process.memory.close()
            self._link.send(Kind.ENDED, number, json.dumps({"code": status.code, "signal": status.signal}).encode())
        supervision.reap_adopted([process.pid for process, _ in self._ranks.values()])

    def _pass_on_notices(self) -> None:
        if self._notices is not None:
            for notice, process in notices(self._notices):
                self._link.send(Kind.NOTICE, process, notice)


def _reserved_port() -> socket.socket:
    """A port that stays free for ranks 0 of this job: they listen there, as their sockets share it, and this one never does."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        with suppress(OSError):
            found = socket.socket(family, socket.SOCK_STREAM)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            found.bind((address, 0))
            return found
    sys.exit("tarantella: this host gives no TCP port")
