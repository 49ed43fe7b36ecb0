"""The place of this process in the job, and what the installation can do."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tarantella import _native, collectives, generations, runtime, tensorflow_import
from tarantella.errors import UnsupportedError
from tarantella.horovod.common import process_sets
from tarantella.installation import page

_places: list[list[int]] | None = None
"""The local rank and the local size of each rank; None before `init` and after `shutdown`."""


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job. Collective. Every other function here needs it.

    Args:
        comm: None, or the list of all ranks.
        process_sets: a list of `ProcessSet` to add, or ``"dynamic"``: they can always be added later.
    """
    global _places
    if _places is not None:
        return
    ignored = _honour_environment()
    size = runtime.get_size()
    if comm is not None and (not isinstance(comm, (list, tuple)) or sorted(comm) != list(range(size))):
        raise UnsupportedError("hvd.init(comm=...): the job has all ranks; use process sets for a part of them")
    tensorflow_import.shuffle_by_rank()
    renew()
    if ignored:
        runtime.logger.warning("ignored, they have no meaning here (%s): %s", page("horovod.md"), ", ".join(ignored))
    _add(process_sets)


def renew() -> None:
    """The ranks of the job are others than before: learns their places, and forgets process sets. Collective."""
    global _places
    process_sets.forget()
    if generations.is_newcomer() and generations.joined() == 0:  # until it joins, the places that there will probably be
        _, expected = generations.expected_place()
        _places = [[place, expected] for place in range(expected)]
        return
    place = [runtime.get_local_rank(), runtime.get_local_size()]
    _places = collectives.all_gather(np.array(place, np.int64)).tolist()


def _add(given: Any) -> None:
    if given is not None and not isinstance(given, str):
        for process_set in given:
            process_sets.add_process_set(process_set)


def shutdown() -> None:
    """Forgets `init` and the process sets. The process leaves the job when it ends."""
    global _places
    _places = None
    process_sets.forget()


def is_initialized() -> bool:
    """Whether `init` was called."""
    return _places is not None


def _all_places() -> list[list[int]]:
    if _places is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _places


def rank() -> int:
    """The rank of this process; of a newcomer that has not joined, the one that it will probably have."""
    _all_places()
    return generations.expected_place()[0] if generations.is_newcomer() else runtime.get_rank()


def size() -> int:
    """How many ranks the job has."""
    return len(_all_places())


def local_rank() -> int:
    """The rank among those on this node."""
    return _all_places()[rank()][0]


def local_size() -> int:
    """How many ranks are on this node."""
    return _all_places()[rank()][1]


def _peers() -> list[int]:
    """The ranks with this local rank, one on each node that has one."""
    return [other for other, place in enumerate(_all_places()) if place[0] == local_rank()]


def cross_rank() -> int:
    """This node among those that have a rank with this local rank."""
    return _peers().index(rank())


def cross_size() -> int:
    """How many nodes have a rank with this local rank."""
    return len(_peers())


def is_homogeneous() -> bool:
    """Whether all nodes have equally many ranks."""
    return len({place[1] for place in _all_places()}) == 1


def _transport() -> str:
    _all_places()
    return runtime.world().transport


def mpi_threads_supported() -> bool:
    """Whether MPI carries the data, which is then initialised for several threads."""
    return "mpi" in _transport()


def mpi_enabled() -> bool:
    """Whether MPI carries the data between nodes."""
    return "mpi" in _transport()


def mpi_built() -> bool:
    """Whether the plug-in for MPI is installed."""
    return any(Path(_native.__file__).parent.glob("libtarantella_mpi*"))


def gloo_enabled() -> bool:
    """False: Tarantella carries data by itself."""
    _all_places()
    return False


def gloo_built() -> bool:
    """False: there is no Gloo in Tarantella, and no script needs it."""
    return False


def nccl_built() -> int:
    """1 if this machine has a GPU that the library can use: NCCL is opened when it is needed; else 0."""
    return int(cuda_built())


def cuda_built() -> bool:
    """Whether the library can use a GPU of this machine."""
    return bool(_native.device_count()[0])


def ddl_built() -> bool:
    """False."""
    return False


def ccl_built() -> bool:
    """False."""
    return False


def rocm_built() -> bool:
    """False."""
    return False


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Records this rank's part of a timeline from now on. Ranks that give one file share it.

    Args:
        file_path: the file, for chrome://tracing or Perfetto. Other ranks of this job may write to it, too.
        mark_cycles: ignored: there are no cycles.

    Raises:
        InvalidArgumentError: a timeline is being recorded. TarantellaError: the file cannot be written.
    """
    _all_places()
    _native.timeline_start(os.fspath(file_path))


def stop_timeline() -> None:
    """Writes this rank's part of the timeline. Without it, it is written when the process leaves the job."""
    _all_places()
    _native.timeline_stop()


_LEVELS = {"trace": "DEBUG", "debug": "DEBUG", "info": "INFO", "warning": "WARNING", "error": "ERROR", "fatal": "ERROR"}


def _kilobytes(text: str) -> str:
    """As TNT_FUSION_THRESHOLD has it: a tensor in each bucket for 0."""
    return str(-(-int(text) // 1024)) if text.isdigit() else text


_COUNTERPARTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "HOROVOD_FUSION_THRESHOLD": ("TNT_FUSION_THRESHOLD", _kilobytes),
    "HOROVOD_TIMELINE": ("TNT_TIMELINE", str),
    "HOROVOD_LOG_LEVEL": ("TNT_LOG_LEVEL", lambda text: _LEVELS.get(text.lower(), text)),
    "HOROVOD_GLOO_TIMEOUT_SECONDS": ("TNT_TIMEOUT", str),
}
# written by Horovod's launcher, or true of Tarantella as it is
_HARMLESS = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_DYNAMIC_PROCESS_SETS")


def _honour_environment() -> list[str]:
    """Sets the counterparts that the environment does not have. Returns the names of the variables that mean nothing here."""
    ignored = []
    for name, value in sorted(os.environ.items()):
        if name in _COUNTERPARTS:
            counterpart, convert = _COUNTERPARTS[name]
            os.environ.setdefault(counterpart, convert(value))
        elif name.startswith("HOROVOD_") and name not in _HARMLESS:
            ignored.append(name)
    return ignored
