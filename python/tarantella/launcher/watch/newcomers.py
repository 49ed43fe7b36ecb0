"""`tarantella --elastic`: the ranks that start beside those that run, and join the job when they are ready.

They start in the places of lost ones (`--replacements`), and in slots that were added to the hostfile (`--max-ranks`).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from tarantella import variables
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host, Slot, all_here, check_names, each_slot, slots
from tarantella.launcher.command_line.options import Options
from tarantella.launcher.show.output import Console
from tarantella.launcher.start.environment import Rendezvous
from tarantella.launcher.watch.hostfile import Hostfile


class Hosts(Protocol):
    """The other hosts of a job."""

    def is_ready(self, host: Host) -> bool:
        """Whether ranks can start there now."""

    def newly_lost(self) -> list[str]:
        """The names of hosts that were lost since this was asked last."""


class Newcomers:
    """Which slots are vacant, and who takes them.

    Args:
        options: of the job.
        console: gets a warning if a version of the hostfile makes no sense.
        hosts: None if the launcher itself starts the ranks, on this machine.
    """

    def __init__(self, options: Options, console: Console, hosts: Hosts | None) -> None:
        self._console, self._hosts = console, hosts
        self._left, self._most = options.replacements, options.max_ranks
        self._path, self._hostfile = options.hostfile, None
        if options.hostfile is not None and (self._left or self._most):
            self._hostfile = Hostfile(options.hostfile, options.per_node, options.all_hosts)
        here = (Host("", options.ranks),)
        self._of = dict(enumerate(each_slot(here if hosts is None else options.hosts)))  # of each rank that has started
        self._slots = self._named(options.all_hosts or here)
        self._vacant: list[Slot] = []  # those of lost ranks that nobody has replaced
        self._added: list[Slot] = []  # those in which nobody has started yet

    def slot_of(self, number: int) -> Slot:
        """That of a rank that has started, or is among the first."""
        return self._of.get(number, Slot("", number))  # a rank that mpirun has started knows its own alone

    def lost(self, number: int) -> None:
        """A rank was lost."""
        self._vacant.append(self._of[number])

    def place(self, number: int, running: Collection[int]) -> str:
        """Gives a slot to a rank that starts now. Returns in which in words; empty if there is none for it.

        Args:
            number: of the rank.
            running: those of the ranks that run.
        """
        self._look(running)
        occupied = {self._of[one] for one in running}
        if self._vacant and self._left:
            each = (Slot(host, index) for host, count in self._slots.items() for index in range(count))
            slot = self._first_free((*self._vacant, *each), occupied)
            if slot is not None:
                self._left -= 1
                self._vacant.remove(slot if slot in self._vacant else self._vacant[0])
                self._take(number, slot)
                return "in place of one that was lost (--elastic)"
        if self._added and len(running) < self._most:
            slot = self._first_free(self._added, occupied)
            if slot is not None:
                self._take(number, slot)
                return "in a slot that was added (--max-ranks)"
        return ""

    def _first_free(self, candidates: Iterable[Slot], occupied: Collection[Slot]) -> Slot | None:
        for slot in candidates:
            count = self._slots.get(slot.host, 0)
            if slot.index < count and slot not in occupied and self._is_ready(Host(slot.host, count)):
                return slot
        return None

    def _is_ready(self, host: Host) -> bool:
        return self._hosts is None or self._hosts.is_ready(host)

    def _take(self, number: int, slot: Slot) -> None:
        self._added = [one for one in self._added if one != slot]
        self._of[number] = slot

    def _look(self, running: Collection[int]) -> None:
        """Notes which hosts were lost, and what was added to the hostfile."""
        for name in [] if self._hosts is None else self._hosts.newly_lost():
            self._slots[name] = 0  # until a later version of the hostfile names it
        try:
            hosts = None if self._hostfile is None else self._hostfile.change()
            named = None if hosts is None else self._named(hosts)
        except UsageError as error:
            self._console.message(f"{error}; the job goes on with the slots that it had (--elastic)")
            return
        if named is None:
            return
        before, self._slots = self._slots, named
        occupied = {self._of[one] for one in running}
        new = [Slot(host, index) for host, count in named.items() for index in range(before.get(host, 0), count)]
        self._added = [slot for slot in (*self._added, *new) if slot.index < named.get(slot.host, 0) and slot not in occupied]

    def _named(self, hosts: Sequence[Host]) -> dict[str, int]:
        """The slots of each host that the job can use. Raises UsageError."""
        if self._hosts is not None:
            check_names(hosts)
            return {host.name: host.slots for host in hosts}
        other = next((host.name for host in hosts if host.name and not all_here([host])), None)
        if other is not None:
            raise UsageError(
                f"--hostfile: {self._path!r} names {other!r}, but this job began on this machine alone, where ranks share "
                "memory: start it with --remote-shell to let it grow onto other hosts"
            )
        return {"": slots(hosts)}


def environment(running: int, size: int) -> dict[str, str]:
    """The variables of a newcomer, which is alone until it joins.

    Args:
        running: how many ranks run.
        size: the number of ranks with which the job began. The others have computed their batch sizes from it, too.
    """
    return {**Rendezvous.random().place(0, 1), variables.NEWCOMER: f"{running} {size}"}
