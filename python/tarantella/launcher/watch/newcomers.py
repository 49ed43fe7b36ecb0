"""`tarantella --elastic`: the ranks that start in the places of lost ones, and join the job when they are ready."""

from tarantella import variables
from tarantella.launcher.start.environment import Rendezvous


class Newcomers:
    """Which places are vacant, and who takes them.

    Args:
        most: how many ranks may start after the first ones.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._vacant: list[int] = []
        self._places: dict[int, int] = {}  # of those that have started: the first rank that had the place

    def lost(self, number: int) -> None:
        """A rank of the job was lost."""
        self._vacant.append(self._places.get(number, number))

    def next_place(self, number: int) -> int | None:
        """The place that a rank with this number takes now; None if there is none for it."""
        if not self._vacant or self._left == 0:
            return None
        self._left -= 1
        self._places[number] = self._vacant.pop(0)
        return self._places[number]


def environment(running: int) -> dict[str, str]:
    """The variables of a newcomer: it is alone until it joins. running: how many ranks run."""
    return {**Rendezvous.random().place(0, 1), variables.NEWCOMER: f"{running} {running + 1}"}
