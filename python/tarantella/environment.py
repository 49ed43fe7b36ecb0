"""What this process can tell of the job from its environment alone, without joining it."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from tarantella.errors import InvalidArgumentError
from tarantella.mpi import job_name, started_by_mpi

THREADS_CHOSEN = "TNT_THREADS_CHOSEN"
"""Set where the number of intra-op threads is a rank's share of the cores, and nobody's wish."""


def in_job() -> bool:
    """Whether this process was started as one of several ranks, by our launcher, mpirun or srun."""
    return os.environ.get("TNT_SIZE", "1") != "1" or started_by_mpi()


def local_rank() -> int | None:
    """This process among the job's on this machine, as far as the environment says."""
    names = ("TNT_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdigit()), None)


def flag(name: str) -> bool:
    """Whether the variable is set to what means yes.

    Raises:
        InvalidArgumentError: it means neither yes nor no.
    """
    value = os.environ.get(name, "")
    if value.lower() in {"1", "true", "on", "yes"}:
        return True
    if value.lower() in {"0", "false", "off", "no", ""}:
        return False
    raise InvalidArgumentError(f"{name}={value}: expected true or false")


def legacy_keras() -> bool:
    """Whether `tf.keras` is legacy Keras (`tf_keras`): in TensorFlow's own words, as both must take the same."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")


def output_on_all_devices() -> bool:
    """Whether ranks other than the master show progress and summaries too."""
    return flag("TNT_OUTPUT_ON_ALL_DEVICES")


def tensorboard_on_all_devices() -> bool:
    """Whether ranks other than the master write files for TensorBoard too, each into folders of its own."""
    return flag("TNT_TENSORBOARD_ON_ALL_DEVICES")


def log_on_all_devices() -> bool:
    """Whether ranks other than the master log too."""
    return flag("TNT_LOG_ON_ALL_DEVICES")


def log_level() -> str:
    """The least level that is logged, in words of Python's logging."""
    level = os.environ.get("TNT_LOG_LEVEL", "WARNING").upper()
    return {"WARN": "WARNING"}.get(level, level)


def gpus_per_node() -> int | None:
    """How many GPUs of a node are to be used, none if 0 or less; None if all of them.

    Raises:
        InvalidArgumentError: it is no whole number.
    """
    value = os.environ.get("TNT_GPUS_PER_NODE", "")
    try:
        return int(value) if value else None
    except ValueError:
        raise InvalidArgumentError(f"TNT_GPUS_PER_NODE={value}: expected a whole number") from None


def reproducible(variables: Mapping[str, str] = os.environ) -> int | None:
    """Into how many shards a global batch is cut, whatever the number of ranks, so that they all give the same bits.

    Args:
        variables: where to look, if not in this process' own environment.

    Returns:
        A power of two; None where the environment does not ask for it.

    Raises:
        InvalidArgumentError: it is no power of two.
    """
    value = variables.get("TNT_REPRODUCIBLE", "")
    if not value:
        return None
    if not (value.isascii() and value.isdigit() and int(value).bit_count() == 1):
        raise InvalidArgumentError(f"TNT_REPRODUCIBLE={value}: expected a power of two, such as 8")
    return int(value)


def has_reproducible() -> bool:
    """Whether the environment says something of it, sense or not."""
    return bool(os.environ.get("TNT_REPRODUCIBLE"))


def threads_chosen() -> bool:
    """Whether nobody has said how many threads compute an operation: it is this rank's share of the cores, or all of them.

    Bits then depend on the number of ranks, or on the machine. A script that sets it by `tf.config.threading` is not seen here.
    """
    return THREADS_CHOSEN in os.environ or "TF_NUM_INTRAOP_THREADS" not in os.environ


def intra_op_threads() -> int | None:
    """How many threads of TensorFlow compute an operation, as far as the environment says."""
    value = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(value) if value.isdigit() else None


def fingerprint() -> Path | None:
    """The file that gets hashes of gradients and weights in each step, if one is wanted."""
    value = os.environ.get("TNT_FINGERPRINT", "")
    return Path(value) if value else None


def restarts() -> int:
    """How often the job was started again before.

    Raises:
        InvalidArgumentError: it is no whole number.
    """
    value = os.environ.get("TNT_RESTART", "") or "0"
    if not (value.isascii() and value.isdigit()):
        raise InvalidArgumentError(f"TNT_RESTART={value}: expected a whole number, 0 for the first start")
    return int(value)


def autotune() -> bool:
    """Whether the fusion threshold is to be chosen by trying some."""
    return flag("TNT_AUTOTUNE")


def has_fusion_threshold() -> bool:
    """Whether the environment says at how many bytes a bucket of gradients is closed."""
    return "TNT_FUSION_THRESHOLD" in os.environ


def fusion_threshold() -> float | None:
    """At how many bytes a bucket of gradients is closed, infinite for one bucket; None if the library chooses.

    Raises:
        InvalidArgumentError: it is no size.
    """
    value = os.environ.get("TNT_FUSION_THRESHOLD")
    try:
        return None if value is None else kilobytes(value)
    except ValueError as error:
        raise InvalidArgumentError(f"TNT_FUSION_THRESHOLD={value}: expected {error}") from None


def kilobytes(text: str) -> float:
    """A size in bytes, as `src/base/settings.cpp` reads it. Raises ValueError with what was expected."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kmg]?)|inf", text, re.IGNORECASE)
    if found is None:
        raise ValueError("kilobytes, a number with K, M or G, or inf")
    if found[1] is None:
        return float("inf")
    return float(found[1]) * 1024.0 ** " kmg".index(found[2].lower() or "k")


def gradient_dtype() -> str:
    """In which gradients of models that do not say are sent, ``"none"`` for as they are."""
    return os.environ.get("TNT_GRADIENT_DTYPE", "none").lower()


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


def agreed_seed() -> int:
    """A random number that is the same on all ranks of the job, however often it is started again, and another in the next job.

    Collective where neither our launcher nor the one of MPI gives the job a name.
    """
    token = os.environ.get("TNT_JOB") or os.environ.get("TNT_TOKEN", "")
    if not token:
        token = _name_of_mpi_job() if started_by_mpi() else str(os.getpid())
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "little") & 0x7FFFFFFF


@functools.cache
def _name_of_mpi_job() -> str:
    name = job_name()
    if not name:
        from tarantella import runtime

        name = str(runtime.broadcast(secrets.randbits(62)))
    return name
