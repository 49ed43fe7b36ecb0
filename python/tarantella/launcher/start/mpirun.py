"""The mpirun that starts ranks on other hosts: its kind, and its command line."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarantella.launcher.base.words import UsageError
from tarantella.launcher.command_line.hosts import Host, slots
from tarantella.launcher.command_line.options import Cleanup, Options
from tarantella.launcher.start.own_program import own_program

VERSION_SECONDS = 30
PASSED_ON = ("TNT_", "TF_", "KERAS_", "OMP_", "XLA_", "CUDA_", "NCCL_", "PYTHON")
"""Variables with these prefixes are passed on to ranks on other hosts; ssh alone does not do that."""
PASSED_ON_WHOLE = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


RANKS, JOINING, FLIGHT_RECORDER, GRACE = "--ranks=", "--joining=", "--flight-recorder=", "--grace="
"""Options of mpi_rank.py: how many ranks the job has, how many of them are expected to join, where flight records go, and the
seconds after SIGTERM."""


@dataclass(frozen=True)
class Mpirun:
    """An mpirun and the options that the user gave it."""

    command: tuple[str, ...]
    hydra: bool
    """Whether it is MPICH's; else it is Open MPI's."""
    version: str
    """The first line of what it says of its version."""

    @property
    def plugin(self) -> str:
        """The part of Tarantella that its ranks need, as in src/comm/mpi/mpi_library.hpp."""
        return f"libtarantella_mpi_{'mpich' if self.hydra else 'openmpi'}.so"

    def __str__(self) -> str:
        return f"{'MPICH' if self.hydra else 'Open MPI'}'s {os.path.basename(self.command[0])}"


def find_mpirun(command: Sequence[str]) -> Mpirun:
    """Finds out the kind of an mpirun. Raises UsageError if there is none, or if its kind is not supported."""
    program = command[0]
    if shutil.which(program) is None:
        raise UsageError(
            f"{program!r} is not a program that can be run, and ranks on several hosts are started by mpirun: install Open MPI "
            "(on Debian, openmpi-bin), or name another one with --mpirun"
        )
    try:
        asked = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_SECONDS,
            check=False,
        )
        output = asked.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program!r} does not say its version: {error}") from None
    first = (output.strip().splitlines() or ["nothing"])[0]
    if "Open MPI" in output or "OpenRTE" in output or "PRTE" in output:
        return Mpirun(tuple(command), hydra=False, version=first)
    if "HYDRA" in output:
        return Mpirun(tuple(command), hydra=True, version=first)
    raise UsageError(f"{program!r} is neither Open MPI's nor MPICH's mpirun: asked for its version it says {first!r}")


def rank_command(options: Options) -> list[str]:
    """The command that mpirun starts for each rank: the launcher's process on the rank's host (mpi_rank.py)."""
    flags = ["--output-on-all-devices"] * options.output_on_all_devices + ["--log-on-all-devices"] * options.log_on_all_devices
    flags += [options.pin.option] if options.pin else []
    flags += [] if options.prefix else ["--no-prefix"]
    flags += [f"{RANKS}{options.ranks}"]
    flags += [f"{JOINING}{options.ranks}"] if options.is_python else []
    flags += [f"{FLIGHT_RECORDER}{options.flight_recorder}"] if options.flight_recorder else []
    flags += [f"{GRACE}{options.grace}"] if options.grace is not None else []
    return own_program("launcher.watch.mpi_rank", *flags, "--", *options.command)


def cleanup_command(options: Cleanup) -> list[str]:
    """The command that mpirun starts on each host to clean it up."""
    flags = ["--force"] * options.force + ["--dry-run"] * options.dry_run
    return own_program("launcher.watch.cleanup", *flags)


def end_job_command(job: str) -> list[str]:
    """The command that mpirun starts on each host to end the remaining processes of one job there."""
    return own_program("launcher.watch.cleanup", "--job", job)


def mpirun_command(
    mpirun: Mpirun,
    hosts: Sequence[Host],
    command: Sequence[str],
    environment: Mapping[str, str],
    own: Iterable[str] = (),
    *,
    root: bool,
) -> list[str]:
    """The command line of mpirun.

    command: what runs in each slot of the hosts. environment: mpirun's; Hydra passes on all of it, Open MPI only variables that
    are named. own: names that are passed on besides PASSED_ON. Ranks are not bound to cores, so that each can use its share of
    them with several threads.
    """
    names = ",".join(map(str, hosts))
    folder = os.getcwd()
    if mpirun.hydra:
        words = ["-hosts", names, "-n", str(slots(hosts)), "-bind-to", "none", "-wdir", folder]
    else:
        words = ["--allow-run-as-root"] if root else []
        words += ["--host", names, "-n", str(slots(hosts)), "--map-by", "slot", "--bind-to", "none", "--wdir", folder]
        for name in sorted(environment):
            if name.startswith(PASSED_ON) or name in PASSED_ON_WHOLE or name in own:
                words += ["-x", name]
    return [*mpirun.command, *words, *command]
