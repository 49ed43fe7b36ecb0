"""The environment of a rank.

Each of these wins over the ones before it: the launcher's defaults (thread counts), the environment of the launcher, options,
-x, and the variables of `tarantella.variables`.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from tarantella import variables
from tarantella.launcher.base import mark
from tarantella.launcher.command_line.options import Options
from tarantella.threads import chosen_threads

ALWAYS = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
"""Set for every rank, unless the environment has them. Ranks, and a job that is started again, iterate over sets alike."""


TRACKERS_OFF = {"WANDB_MODE": "disabled", "NEPTUNE_MODE": "debug"}
"""What trackers of experiments offer to log nothing. All ranks run the script, and rank 0 alone is to log."""


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks of a job find each other, and the secret that they need to join."""

    name: str
    """The name of an abstract Unix-domain socket, without its leading NUL. It leaves no file behind."""
    token: str

    @staticmethod
    def random() -> "Rendezvous":
        return Rendezvous(f"tarantella-{secrets.token_hex(8)}", secrets.token_hex(16))

    def place(self, rank: int, size: int) -> dict[str, str]:
        """The variables of a rank that meets the others here, all on this machine."""
        values = (rank, size, rank, size, self.name, self.token)
        return dict(zip(variables.OF_PLACE, map(str, values), strict=True))


def shared_environment(options: Options, inherited: Mapping[str, str], cores: int) -> dict[str, str]:
    """The variables that the launcher sets for every rank."""
    threads = chosen_threads(options.ranks, cores, {**inherited, **options.variables})
    return _always(inherited) | threads | options.variables


def mpi_environment(options: Options, inherited: Mapping[str, str]) -> dict[str, str]:
    """The same where mpirun starts the ranks. Only the host of a rank knows its number of threads (tarantella.threads).

    The name of the job is what its ranks know each other by before MPI is initialised (src/bootstrap/join_watch.hpp).
    """
    return _always(inherited) | {variables.JOB: secrets.token_hex(8)} | options.variables


def _always(inherited: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in ALWAYS.items() if key not in inherited}


def rank_environment(shared: Mapping[str, str], size: int, rendezvous: Rendezvous, rank: int, report: str) -> dict[str, str]:
    """All that the launcher sets for one rank. report: the name of the pipe for its report.

    A variable of a tracker that -x gives holds for every rank; one that the launcher has inherited is for rank 0.
    """
    own = {**rendezvous.place(rank, size), variables.REPORT_FD: report, variables.LAUNCHER: mark.own_mark()}
    others = _variables_of_other_launchers(rank, size) if shared.get("TNT_HOROVOD") == "1" else {}
    trackers = TRACKERS_OFF if rank > 0 else {}
    return {**trackers, **others, **shared, **own}


def _variables_of_other_launchers(rank: int, size: int) -> dict[str, str]:
    """What scripts for Horovod look for to know whether they are ranks: as mpirun and horovodrun set it on one node.

    Tarantella itself does not take these for MPI's, as TNT_SIZE is there (src/bootstrap/join.cpp).
    """
    places = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size}
    return {f"{launcher}_{name}": str(value) for launcher in ("OMPI_COMM_WORLD", "HOROVOD") for name, value in places.items()}
