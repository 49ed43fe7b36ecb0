"""What a process can tell from its environment without joining the job: whether it is a rank, its threads, its caches."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path

from tarantella import variables
from tarantella.errors import InvalidArgumentError
from tarantella.mpi import started_by_mpi


def in_job() -> bool:
    """Whether this process was started as one of several ranks, by our launcher, mpirun or srun."""
    return os.environ.get(variables.SIZE, "1") != "1" or started_by_mpi()


def local_rank() -> int | None:
    """This process among the job's on this machine, as far as the environment says."""
    names = (variables.LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), None)


def legacy_keras() -> bool:
    """Whether `tf.keras` is legacy Keras (`tf_keras`): in TensorFlow's own words, as both must take the same."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")


def threads_chosen() -> bool:
    """Whether nobody has said how many threads compute an operation: it is this rank's share of the cores, or all of them.

    Bits then depend on the number of ranks, or on the machine. A script that sets it by `tf.config.threading` is not seen here.
    """
    return variables.THREADS_CHOSEN in os.environ or "TF_NUM_INTRAOP_THREADS" not in os.environ


def intra_op_threads() -> int | None:
    """How many threads of TensorFlow compute an operation, as far as the environment says."""
    value = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(value) if value.isdigit() else None


def restarts() -> int:
    """How often the job was started again before.

    Raises:
        InvalidArgumentError: it is no whole number.
    """
    value = os.environ.get(variables.RESTART, "") or "0"
    if not (value.isascii() and value.isdigit()):
        raise InvalidArgumentError(f"{variables.RESTART}={value}: expected a whole number, 0 for the first start")
    return int(value)


def cxx() -> list[str]:
    """The C++ compiler that the environment names, with its options; empty if it names none."""
    return shlex.split(os.environ.get("CXX", ""))


def cache_folder() -> Path | None:
    """Where this user's programs keep what they can make again; None where the environment names no home."""
    for folder, below in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
        if os.environ.get(folder, "").startswith("/"):  # a relative path is to be ignored, says the XDG specification
            return Path(os.environ[folder], below, "tarantella")
    return None


def host_cache_file(subject: str) -> Path | None:
    """Where this host keeps what was measured on it, as `src/base/host_cache.cpp` has it; None where there is no such place."""
    folder = cache_folder()
    host = socket.gethostname().replace("/", "_")
    return None if folder is None else folder / f"{subject}-{host}.json"
