"""The program `mpi_rank [options] -- COMMAND...` (`own_program.py`): watches one rank of a job on several hosts.

mpirun starts it once for each rank. Like the launcher on one node, it shows, hides or prefixes the output of the rank and
reports its failure. It ends the rank and all that it started when mpirun asks for that or has gone.
"""

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tarantella import variables
from tarantella.environment import local_rank
from tarantella.launcher.base import mark
from tarantella.launcher.base.signals import SAVING, survive_asking
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.options import Options, Pin
from tarantella.launcher.show.output import Console
from tarantella.launcher.start.environment import TRACKERS_OFF, Rendezvous
from tarantella.launcher.start.mpirun import FLIGHT_RECORDER, GRACE, JOINING, RANKS
from tarantella.launcher.start.pinning import Pinning
from tarantella.launcher.start.process import RankSpec
from tarantella.launcher.watch import rank_notices, supervision
from tarantella.launcher.watch.job import Job
from tarantella.mpi import local_size
from tarantella.threads import is_bound, share_cores

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")


def main(argv: list[str]) -> int:
    """Runs the rank and returns what it returned."""
    at = argv.index("--")
    flags, command = argv[:at], argv[at + 1 :]
    share_cores()
    supervision.adopt()
    survive_asking(SAVING)
    options = Options(
        ranks=int(_value(flags, RANKS) or 1),
        command=tuple(command),
        variables={},
        output_on_all_devices="--output-on-all-devices" in flags,
        log_on_all_devices="--log-on-all-devices" in flags,
        dry_run=False,
        prefix="--no-prefix" not in flags,
        pin=next((pin for pin in Pin if pin.option in flags), Pin.NOTHING if is_bound() else None),  # mpirun has bound it
        flight_recorder=Path(folder) if (folder := _value(flags, FLIGHT_RECORDER)) else None,
        grace=float(seconds) if (seconds := _value(flags, GRACE)) else None,
    )
    console = Console()
    try:
        pinning = Pinning.from_options(options, local_size())
    except UsageError as error:
        console.announce(f"rank {_rank()} on {socket.gethostname()}: {error}")
        return 1
    pmi = os.environ.get("PMI_FD", "")  # MPICH's Hydra notices by its end that the rank has gone
    spec = RankSpec(
        command=options.command,
        environment=partial(_environment, {} if pinning is None else pinning.variables),
        output_on_all_devices=options.output_on_all_devices,
        inherited=(int(pmi),) if pmi.isdigit() else (),
        prepare=None if pinning is None else lambda _: pinning.preparation(local_rank() or 0),
    )
    joining = int(_value(flags, JOINING) or 0)
    # what rank 0 says of itself holds for all: none joins without it
    job = Job(options, spec, Rendezvous.random(), console, joining=joining if _rank() == 0 else 0, only=_rank())
    rank_notices.tell(_rank(), "started")
    code = job.run().code
    if code == 0:
        rank_notices.tell(_rank(), "ended")
    if code != 0 and "PMI_FD" in os.environ:
        # Hydra does not end the other ranks because of an exit code, and they may wait in MPI_Init for this one
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return code


def _value(flags: Sequence[str], name: str) -> str:
    return next((flag.removeprefix(name) for flag in flags if flag.startswith(name)), "")


def _rank() -> int:
    return next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)


def _environment(bound: Mapping[str, str], _number: int, report: str) -> Mapping[str, str]:
    trackers = {name: off for name, off in TRACKERS_OFF.items() if name not in os.environ} if _rank() > 0 else {}
    return {**trackers, **bound, variables.REPORT_FD: report, variables.LAUNCHER: mark.own_mark()}
