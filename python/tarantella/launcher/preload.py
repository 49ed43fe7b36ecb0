"""`tarantella --preload tensorflow,keras -- train.py`: modules that the launcher imports once, for all ranks of this node.

Ranks are forks of the launcher then (`forked.py`): they start in the time of one import, and share its memory. Nothing that
a fork does not survive may exist by then: no thread pool, no device.
"""

from __future__ import annotations

import gc
import importlib
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tarantella import seeding
from tarantella.launcher.errors import UsageError
from tarantella.launcher.forked import search_beside
from tarantella.launcher.mark import own_mark
from tarantella.variables import JOB, LAUNCHER, LAUNCHER_ADDED

FIXED_BY_IMPORT = (
    "KERAS_BACKEND",
    "KERAS_HOME",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
)
"""Variables that the interpreter, TensorFlow and Keras read when they are started or imported, and never again."""


@dataclass(frozen=True)
class Preloaded:
    """What has been imported, and with what."""

    modules: tuple[str, ...]
    environment: Mapping[str, str]
    """As it was at the import."""
    descriptors: frozenset[int]
    """Files that the modules have opened."""

    def require(self, environment: Mapping[str, str]) -> None:
        """Raises UsageError if a rank with this environment would have imported something else."""
        for name in FIXED_BY_IMPORT:
            wanted, has = environment.get(name), self.environment.get(name)
            if wanted != has:
                raise UsageError(
                    f"--preload: {name} is {_shown(wanted)} for the ranks and was {_shown(has)} when {', '.join(self.modules)} "
                    "had to be imported, which alone looks at it: start another launcher for it, or leave --preload out"
                )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)


_preloaded: Preloaded | None = None
_job: str | None = None
_added: tuple[str, ...] = ()


def preloaded() -> Preloaded:
    """What this process has imported. Only after `load`."""
    assert _preloaded is not None
    return _preloaded


def job_name() -> str:
    """What tells the processes of this launcher's job from others, in their environments as the kernel shows them."""
    return _job or secrets.token_hex(8)


def start_anew(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replaces this process by itself with the environment that ranks get, unless that has been done. argv: its words.

    Libraries read some variables when they are loaded, and the kernel shows those that a program was started with: it is by
    these that processes which a job has left over are found (`mark.py`).
    """
    global _job, _added
    if _preloaded is not None:
        return
    if os.environ.get(LAUNCHER) == own_mark():  # a process keeps its mark when it starts itself anew
        _job, _added = os.environ[JOB], (LAUNCHER_ADDED, *filter(None, os.environ[LAUNCHER_ADDED].split(",")))
        return
    own = {LAUNCHER: own_mark(), JOB: secrets.token_hex(8)}
    added = [name for name in (*environment, *own) if name not in os.environ]
    everything = {**os.environ, **environment, **own, LAUNCHER_ADDED: ",".join(added)}
    os.execve(sys.executable, [sys.executable, "-m", "tarantella.launcher", *argv], everything)


def load(modules: Sequence[str], script: str) -> None:
    """Imports the modules, which may lie beside the script. Does nothing if that has been done.

    Raises UsageError if one cannot be imported, or has done what a fork does not survive.
    """
    global _preloaded
    if _preloaded is None:
        search_beside(script)
        seeding.uninstall()  # each rank does it for itself, with its own environment
        before = _open_descriptors()
        environment = dict(os.environ)
        for name in modules:
            _import(name)
        _require_no_devices()
        gc.collect()
        gc.freeze()  # the collector of a rank writes to none of these objects: their memory stays shared
        _preloaded = Preloaded(tuple(modules), environment, frozenset(_open_descriptors() - before))
    for name in _added:
        os.environ.pop(name, None)  # what the launcher chose is chosen again at each start of the ranks
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        raise UsageError(f"--preload: {missing[0]} was not imported with {', '.join(_preloaded.modules)}")


def _import(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:
        raise UsageError(f"--preload: cannot import {name!r}: {type(error).__name__}: {error}") from error


def _require_no_devices() -> None:
    """TensorFlow must not have started its thread pools and devices: it refuses to change their number afterwards."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return
    threads = tensorflow.config.threading
    number = threads.get_inter_op_parallelism_threads()
    try:
        threads.set_inter_op_parallelism_threads(number + 1)
        threads.set_inter_op_parallelism_threads(number)
    except RuntimeError:
        raise UsageError(
            "--preload: a module has computed with TensorFlow when it was imported, so its threads and devices exist, which "
            "ranks cannot share: preload modules that only define things"
        ) from None


def _open_descriptors() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
        except OSError:  # the one that the folder was read by
            continue
        found.add(int(name))
    return found
