"""The mpirun that starts ranks on other hosts: which one it is, and the command that it gets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tarantella.launcher.errors import UsageError
from tarantella.launcher.hosts import Host, slots
from tarantella.launcher.options import Cleanup, Options

VERSION_SECONDS = 30
PASSED_ON = ("TNT_", "TF_", "KERAS_", "OMP_", "XLA_", "CUDA_", "NCCL_", "PYTHON")
"""Variables that begin so go to the ranks on other hosts, too: ssh alone would not bring them there."""
PASSED_ON_WHOLE = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Mpirun:
    """An mpirun and the options that the user gave it."""

    command: tuple[str, ...]
    hydra: bool
    """MPICH's; else Open MPI's."""

    def __str__(self) -> str:
        return f"{'MPICH' if self.hydra else 'Open MPI'}'s {os.path.basename(self.command[0])}"


def find_mpirun(command: Sequence[str]) -> Mpirun:
    """Asks an mpirun what it is. Raises UsageError if there is none, or one that nobody knows how to talk to."""
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
        said = asked.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{program!r} does not say its version: {error}") from None
    if "Open MPI" in said or "OpenRTE" in said or "PRTE" in said:
        return Mpirun(tuple(command), hydra=False)
    if "HYDRA" in said:
        return Mpirun(tuple(command), hydra=True)
    first = (said.strip().splitlines() or ["nothing"])[0]
    raise UsageError(f"{program!r} is neither Open MPI's nor MPICH's mpirun: asked for its version it says {first!r}")


def rank_command(options: Options) -> list[str]:
    """What mpirun starts for each rank: the part of the launcher that looks after a rank on its own host."""
    flags = ["--output-on-all-devices"] * options.output_on_all_devices + ["--log-on-all-devices"] * options.log_on_all_devices
    flags += [options.pin.option] if options.pin else []
    return [sys.executable, "-m", "tarantella.launcher.mpi_rank", *flags, "--", *options.command]


def cleanup_command(options: Cleanup) -> list[str]:
    """What mpirun starts on each host to clean it up."""
    flags = ["--force"] * options.force + ["--dry-run"] * options.dry_run
    return [sys.executable, "-m", "tarantella.launcher.cleanup", *flags]


def end_job_command(job: str) -> list[str]:
    """What mpirun starts on each host to end what is left there of one job."""
    return [sys.executable, "-m", "tarantella.launcher.cleanup", "--job", job]


def mpirun_command(
    mpirun: Mpirun,
    hosts: Sequence[Host],
    command: Sequence[str],
    environment: Mapping[str, str],
    own: Iterable[str] = (),
    *,
    root: bool,
) -> list[str]:
    """The whole command. environment: the one that mpirun gets; Hydra passes it on by itself, Open MPI what it is told to.

    command: what runs in each slot of the hosts. own: variables that are told to be passed on beside those that are ours.
    Ranks are bound to no core, so that each can use its share of them with several threads.
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
