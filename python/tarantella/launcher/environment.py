"""What a rank finds in its environment, and whose word counts most.

From weak to strong: what the launcher chooses when nobody else did (thread counts), the environment the
launcher was started in, options, -x, and the variables that tell a rank who it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from tarantella import variables
from tarantella.launcher import mark
from tarantella.launcher.options import Options
from tarantella.threads import chosen_threads

ALWAYS = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1"}
"""What a rank gets wherever it runs, unless somebody has set it."""


@dataclass(frozen=True)
class Meeting:
    """Where the ranks of a job find each other, and the secret that shows they belong together."""

    name: str
    """An abstract Unix-domain socket without its leading NUL: it leaves no file behind."""
    token: str

    @staticmethod
    def random() -> Meeting:
        return Meeting(f"tarantella-{secrets.token_hex(8)}", secrets.token_hex(16))


def shared_environment(options: Options, inherited: Mapping[str, str], cores: int) -> dict[str, str]:
    """What the launcher sets alike for every rank."""
    threads = chosen_threads(options.ranks, cores, {**inherited, **options.variables})
    return _always(inherited) | threads | options.variables


def mpi_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """The same where mpirun starts the ranks: how many threads each gets is known on its host alone (tarantella.mpi)."""
    return _always(inherited) | options.variables


def _always(inherited: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in ALWAYS.items() if key not in inherited}


def rank_environment(
    shared: Mapping[str, str], size: int, meeting: Meeting, rank: int, report: str
) -> dict[str, str]:
    """All that the launcher sets for one rank. report: the number of its descriptor for its last words."""
    values = (rank, size, rank, size, meeting.name, meeting.token, report, mark.own_mark())
    return {**shared, **dict(zip(variables.OF_RANK, map(str, values), strict=True))}
