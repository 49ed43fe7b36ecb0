"""The hosts of an elastic job: their ranks are started there by our processes, which a remote shell has started (`ssh`).

Ranks find each other over TCP: rank 0 of each generation listens on a port of its host.
"""

import os
import selectors
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tarantella import settings, variables
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host, Slot, all_here, describe, each_slot
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.show.output import STDERR, Console, Stream
from tarantella.launcher.start.environment import Rendezvous
from tarantella.launcher.start.mpirun import PASSED_ON, PASSED_ON_WHOLE
from tarantella.launcher.start.own_program import own_program
from tarantella.launcher.start.remote_host import RemoteHost, Told
from tarantella.launcher.start.remote_rank import RemoteRank

BEAT = 1.0
"""Seconds between two signs of life."""
ANSWERS_WITHIN = 60.0
"""Seconds in which our process on a host has to answer first."""
STARTS_WITHIN = 20.0
"""The same for the start of one rank there; less if the other hosts would give up the launcher meanwhile."""


class RemoteHosts:
    """Starts the ranks of a job, in the place of a `RankStarter`.

    Args:
        options: of the job, with its hosts.

    Attributes:
        rendezvous: where the ranks of the beginning meet.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._as_is = not options.output_on_all_devices
        self._patience = settings.timeout({**os.environ, **options.variables})
        self._hosts: dict[str, RemoteHost] = {}
        self._of_ranks = {number: slot.host for number, slot in enumerate(each_slot(options.hosts))}
        self._former: list[RemoteHost] = []  # what was lost, and is in `_hosts` anew
        self._newly_lost: list[str] = []
        self._errors: list[Stream] = []
        self._next_beat = 0.0
        self._places: list[dict[str, str]] = []

    def open(self, console: Console) -> None:
        """Starts our processes. Raises UsageError if a host cannot take part."""
        console.message(f"{describe(self._options.hosts)}, started by {self._options.remote_shell[0]}")
        console.drain()
        for one in self._options.hosts:
            self._hosts[one.name] = RemoteHost(one, self.command(one), self._setup())
        for host in self._hosts.values():
            if not host.wait_until_ready(ANSWERS_WITHIN):
                self._refuse(host)
        self.rendezvous, self._places = self.meeting(range(self._options.ranks))

    def command(self, host: Host) -> list[str]:
        """What runs our process on a host."""
        own = own_program("launcher.watch.host_agent")
        return own if all_here([host]) else [*self._options.remote_shell, host.name, shlex.join(own)]

    def _refuse(self, host: RemoteHost) -> None:
        for one in self._hosts.values():
            one.close()
        said = {one.name: one.wait() for one in self._hosts.values()}[host.name]
        raise UsageError(f"{host.name}: {host.refusal or said or 'no answer'}{self._hint(host)}")

    def _hint(self, host: RemoteHost) -> str:
        shell = shlex.join(self._options.remote_shell)
        way = f" (`{shell} {host.name} true` must work without a password, and this Python must be there under the same path)"
        return "" if host.has_answered else way

    def _setup(self) -> dict[str, Any]:
        options = self._options
        passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON) or name in PASSED_ON_WHOLE}
        return {
            "folder": os.getcwd(), "environment": passed, "variables": options.variables,
            "command": options.command, "patience": self._patience, "pin": options.pin and options.pin.value,
            "output_on_all_devices": options.output_on_all_devices,
        }  # fmt: skip

    def attach(self, selector: selectors.BaseSelector, console: Console, told: Told) -> None:
        """From now on a selector serves the connections."""
        self._console = console

        def serve(host: RemoteHost) -> None:
            host.attach(selector, told)
            stream = Stream(host.errors, lambda line: console.write(STDERR, line + b"\n"))
            self._errors.append(stream)
            stream.watch(selector)

        self._serve = serve
        for host in self._hosts.values():
            serve(host)

    def is_ready(self, host: Host) -> bool:
        """Whether ranks can start there. If it is new, or was lost, a connection to it begins, for which nobody waits."""
        known = self._hosts.get(host.name)
        if known is not None and not known.lost:
            return known.is_ready
        if known is not None:
            known.shell.kill()
            self._former.append(known)
        self._hosts[host.name] = RemoteHost(host, self.command(host), self._setup())
        self._serve(self._hosts[host.name])
        return False

    def newly_lost(self) -> list[str]:
        """The hosts that were lost since this was asked last."""
        lost, self._newly_lost = self._newly_lost, []
        return lost

    def has_changed(self) -> bool:
        """Whether a rank may have ended since this was asked last. Looks whether hosts are there."""
        now = time.monotonic()
        is_due = now >= self._next_beat
        self._next_beat = now + BEAT if is_due else self._next_beat
        for host in self._hosts.values():
            if is_due or host.is_broken:
                host.look(self._patience if host.is_ready else ANSWERS_WITHIN)
        changed = [host for host in self._hosts.values() if host.has_changed]
        for host in changed:
            host.has_changed = False
            if host.lost and not host.had_ranks:
                self._console.message(f"{host.name} takes no ranks: {host.lost}{self._hint(host)}")
        self._newly_lost += [host.name for host in changed if host.lost]
        return bool(changed)

    def start(self, rank: int, slot: Slot, added: Mapping[str, str] | None = None) -> RemoteRank:
        """As of `RankStarter`. Raises OSError."""
        host = self._hosts[slot.host]
        if host.lost:
            raise OSError(f"{slot.host} is lost: {host.lost}")
        for one in self._hosts.values():  # many ranks take longer to start than hosts wait for a sign
            one.beat()
        own = self._places[rank] if added is None or variables.RANK not in added else {}
        self._of_ranks[rank] = slot.host
        within = min(STARTS_WITHIN, self._patience / 2)
        return host.start(rank, slot.index, {**own, **(added or {})}, self._as_is, within)

    def meeting(self, ranks: Sequence[int]) -> tuple[Rendezvous, list[dict[str, str]]]:
        """As of `RankStarter`."""
        names = [self._of_ranks[number] for number in ranks]
        rendezvous = Rendezvous.over_tcp(names[0], self._hosts[names[0]].port)
        return rendezvous, rendezvous.places(names)

    def shells(self) -> list[int]:
        """The processes by which it reaches the hosts."""
        return [host.shell.pid for host in (*self._former, *self._hosts.values())]

    def close(self) -> None:
        """Ends all that runs on the hosts, and waits for the remote shells. To be called while the selector is open."""
        every = (*self._former, *self._hosts.values())
        for host in every:
            host.close()
        for stream in self._errors:
            stream.pause()
        for host in every:
            host.wait()
