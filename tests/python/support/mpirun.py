"""Starts rank scripts under mpirun, with a deadline; tests that need it are skipped, with the reason, where it is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import tarantella
from support.launch import DEFAULTS, SLACK
from tarantella.launcher.base.words import UsageError
from tarantella.launcher.start.mpirun import find_mpirun

# Open MPI as root, in a container, with more ranks than cores; others look for none of it
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def why_no(program: str) -> str:
    """Empty if there is this mpirun, and the package has the plug-in for it."""
    try:
        found = find_mpirun([program])
    except UsageError as error:
        return str(error)
    there = Path(tarantella.__file__).with_name(found.plugin).exists()
    return "" if there else f"Tarantella was built without {found.plugin}"


def needs(program: str) -> pytest.MarkDecorator:
    """Skips tests where that mpirun cannot be used."""
    return pytest.mark.skipif(bool(why_no(program)), reason=why_no(program) or "available")


needs_mpirun = needs("mpirun")


@dataclass(frozen=True)
class MpiResult:
    """How a job under mpirun ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """Everything that was printed."""
        return f"code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


def mpirun(
    n: int,
    script: Path,
    *args: object,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    program: str = "mpirun",
) -> MpiResult:
    """The script on n ranks; its threads are those of the other tests unless env says otherwise ("" unsets)."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TNT_")}
    environment = {**inherited, **DEFAULTS, **MPI_ENVIRONMENT, **(env or {})}
    process = subprocess.Popen(
        [program, "-n", str(n), *([sys.executable] if script.suffix == ".py" else []), str(script), *map(str, args)],
        env={key: value for key, value in environment.items() if value},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=SLACK * timeout)
    except BaseException:
        process.terminate()  # mpirun ends its ranks
        try:
            stdout, stderr = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
        raise AssertionError(f"did not end within {SLACK * timeout} s: {MpiResult(-1, stdout, stderr).said}") from None
    return MpiResult(process.returncode, stdout, stderr)
