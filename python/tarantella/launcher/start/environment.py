"""The environment of a rank.

Each of these wins over the ones before it: the launcher's defaults (thread counts), the environment of the launcher, options,
-x, and the variables of `tarantella.variables`.
"""

import secrets
from collections.abc import Mapping, Sequence
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
    """The name of an abstract Unix-domain socket, without its leading NUL. It leaves no file behind. Or ``tcp://HOST:PORT``."""
    token: str

    @staticmethod
    def random() -> "Rendezvous":
        return Rendezvous(f"tarantella-{secrets.token_hex(8)}", secrets.token_hex(16))

    @staticmethod
    def over_tcp(host: str, port: int) -> "Rendezvous":
        return Rendezvous(f"tcp://{host}:{port}", secrets.token_hex(16))

    def address(self) -> tuple[str, int] | None:
        """Host and port, if ranks meet over TCP."""
        host, _, port = self.name.removeprefix("tcp://").rpartition(":")
        return (host, int(port)) if self.name.startswith("tcp://") else None

    def place(self, rank: int, size: int) -> dict[str, str]:
        """The variables of a rank that meets the others here, all on this machine. A newcomer's may be beyond the size."""
        return self._variables(rank, size, rank, size)

    def places(self, hosts: Sequence[str]) -> list[dict[str, str]]:
        """The variables of ranks that meet here. hosts: of each rank."""
        found = []
        for rank, host in enumerate(hosts):
            found.append(self._variables(rank, len(hosts), hosts[:rank].count(host), hosts.count(host)))
        return found

    def _variables(self, *place: int) -> dict[str, str]:
        return dict(zip(variables.OF_PLACE, map(str, (*place, self.name, self.token)), strict=True))


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
    """All that the launcher sets for one rank. report: the name of the pipe for its report."""
    return environment_of_place(shared, rendezvous.place(rank, size), rank, report)


def environment_of_place(shared: Mapping[str, str], place: Mapping[str, str], number: int, report: str) -> dict[str, str]:
    """The same of a rank with the variables of its place in the job. number: with which it starts.

    A variable of a tracker that -x gives holds for every rank; one that the launcher has inherited is for rank 0.
    """
    own = {**place, variables.REPORT_FD: report, variables.LAUNCHER: mark.own_mark()}
    others = _variables_of_other_launchers(place) if shared.get("TNT_HOROVOD") == "1" else {}
    trackers = TRACKERS_OFF if number > 0 else {}
    return {**trackers, **others, **shared, **own}


def _variables_of_other_launchers(place: Mapping[str, str]) -> dict[str, str]:
    """What scripts for Horovod look for to know whether they are ranks: as mpirun and horovodrun set it.

    Tarantella itself does not take these for MPI's, as TNT_SIZE is there (src/bootstrap/join.cpp).
    """
    names = (variables.RANK, variables.SIZE, variables.LOCAL_RANK, variables.LOCAL_SIZE)
    launchers = ("OMPI_COMM_WORLD", "HOROVOD")
    return {f"{launcher}_{name.removeprefix('TNT_')}": place[name] for launcher in launchers for name in names}
