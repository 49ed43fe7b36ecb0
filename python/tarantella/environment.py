"""The facts that a process has in its environment without joining the job: whether it is a rank, its threads, its caches."""

import os
import shlex
import socket
from pathlib import Path

from tarantella import variables
from tarantella.errors import InvalidArgumentError
from tarantella.mpi import started_by_mpi


def in_job() -> bool:
    """Whether the launcher, mpirun or srun started this process as one of several ranks."""
    return os.environ.get(variables.SIZE, "1") != "1" or variables.ELASTIC in os.environ or started_by_mpi()


def is_rank() -> bool:
    """Whether the launcher, mpirun or srun started this process as a rank, perhaps the only one."""
    return variables.SIZE in os.environ or started_by_mpi()


def join_address(launcher: str) -> str:
    """The abstract Unix-domain socket on which a launcher hears that a rank has joined. launcher: its mark."""
    return f"\0tarantella-joined-{launcher}"


def elastic_address(launcher: str) -> str:
    """The abstract Unix-domain socket on which a launcher tells ranks the next generation of their job. launcher: its mark."""
    return f"\0tarantella-elastic-{launcher}"


REFUSED = "refused"
"""In the launcher's answer to `Message.JOIN`: why there is no next generation."""


class Message:
    """What a rank says there, after its number. A position is an epoch, a step of it and the number of the `fit`."""

    JOIN = "join"
    """It waits for its place in the next generation. With a position: newcomers may come too, who are to wait there."""
    LISTEN = "listen"
    """The master wants to know what newcomers ask."""
    WHERE = "where"
    """A newcomer asks for the position; the master answers with it."""
    READY = "ready"
    """A newcomer is near, and asks for the position at which all ranks meet."""
    REFUSE = "refuse"
    """A newcomer has found that it cannot take part."""


def is_first_rank() -> bool:
    """Whether this process is rank 0 of its job, as far as the environment tells."""
    names = (variables.RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def local_rank() -> int | None:
    """The rank among those on this machine; None if the environment does not tell."""
    names = (variables.LOCAL_RANK, "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), None)


def legacy_keras() -> bool:
    """Whether `tf.keras` is legacy Keras (`tf_keras`). Reads the variable as TensorFlow does."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")


def threads_chosen() -> bool:
    """Whether the number of intra-op threads is a default: this rank's share of the cores, or all of them.

    Bits then depend on the number of ranks, or on the machine. Does not see what a script sets by `tf.config.threading`.
    """
    return variables.THREADS_CHOSEN in os.environ or "TF_NUM_INTRAOP_THREADS" not in os.environ


def intra_op_threads() -> int | None:
    """How many threads of TensorFlow compute an operation; None if the environment does not tell."""
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
    """The folder of this user's caches; None if the environment names no home."""
    for folder, below in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
        if os.environ.get(folder, "").startswith("/"):  # the XDG specification says to ignore relative paths
            return Path(os.environ[folder], below, "tarantella")
    return None


def host_cache_file(subject: str) -> Path | None:
    """The file for measurements of this host, as in `src/base/settings.cpp`; None if there is no cache folder."""
    folder = cache_folder()
    host = socket.gethostname().replace("/", "_")
    return None if folder is None else folder / f"{subject}-{host}.json"
