"""How ranks, communicators and times are worded."""

from collections.abc import Sequence

from tarantella.flight.record import Key


def named_ranks(ranks: Sequence[int]) -> str:
    """rank 3; ranks 0 to 2 and 5."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    joined = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"rank{'' if len(ranks) == 1 else 's'} {joined}"


def named_communicator(key: Key, ranks: int, number: int = 0) -> str:
    """Which communicator it is, in words: of all ranks, or of these. number: among those of the same ranks, if any."""
    members = "all ranks" if len(key.members) == ranks else named_ranks(key.members)
    what = "messages" if key.messages else f"communicator {number}" if number else "the communicator"
    return f"{what} of {members} ({key.transport})"


def seconds(nanoseconds: int) -> str:
    value = nanoseconds * 1e-9
    if value < 60:
        return f"{value:.1f} s" if value >= 1 else f"{value * 1e3:.0f} ms"
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count //= 1024
    return f"{count:.0f} GiB"
