"""The ranks that hold the state of each variable: whole variables, balanced by bytes."""

from collections.abc import Sequence


def owners_of(costs: Sequence[int], ranks: int) -> list[int]:
    """The owner of each variable: the largest first, each to the rank that has least so far.

    The result depends on the arguments alone. The largest part is at most 4/3 of the smallest possible one.

    Args:
        costs: of each variable, such as the bytes of its state.
    """
    owners, loads = [0] * len(costs), [0] * ranks
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        rank = min(range(ranks), key=lambda rank: (loads[rank], rank))
        owners[place] = rank
        loads[rank] += costs[place]
    return owners
