"""The agreement of a group's members: values that must be alike are compared when a collective is made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tarantella.collectives.group import Group
from tarantella.collectives.started import all_gather
from tarantella.errors import MismatchError


def gather_texts(group: Group, text: str) -> list[str]:
    """Every member's text. Collective on the group."""
    comm, own = group.communicator(), np.frombuffer(text.encode(), np.uint8)
    counts = all_gather(comm, np.array([own.size], np.int64), [1] * group.size).wait()
    together = all_gather(comm, own, counts.tolist()).wait()
    return [part.tobytes().decode() for part in np.split(together, np.cumsum(counts)[:-1])]


def require_same_lines(group: Group, what: str, lines: Sequence[str], failure: Exception | None = None) -> None:
    """Raises on all members if their lines differ. Collective on the group.

    Args:
        what: is being made, for the error.
        lines: the text that has to be the same.
        failure: what kept this rank from knowing its lines.

    Raises:
        The failure itself on its rank; else MismatchError, with the first line that differs.
    """
    own = [f"an error, {failure}"] if failure else list(lines)
    texts = gather_texts(group, "\n".join(own))
    if failure:
        raise failure
    first = texts[0].split("\n")
    for rank, text in enumerate(texts[1:], 1):
        other = text.split("\n")
        if other != first:
            pairs = enumerate(zip(first, other, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(first), len(other)))
            shown = [some[at] if at < len(some) else "nothing more" for some in (other, first)]
            raise MismatchError(
                f"{what}: rank {group.to_global_rank(rank)} has {shown[0]}; rank {group.to_global_rank(0)} has {shown[1]}. "
                "Give it the same on all ranks"
            )
