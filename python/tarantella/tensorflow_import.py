"""Actions when a script imports TensorFlow in a rank: GPUs and threads are chosen, and shuffles get one seed on all ranks.

Every rank takes its part of the same global batches, so all ranks must shuffle alike. A script makes its datasets before
`tnt.Model` sees them, so `tf.data.Dataset.shuffle` itself gets a seed. The first gradient of a tape makes optimizers ask before
they change variables, also those of a loop that knows nothing of ranks.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tarantella import environment, first_gradient, gpus, made_datasets, settings, threads
from tarantella.seeding import agreed_seed, global_seed

_before_tapes: Callable[[], None] | None = None
_own_shuffles = False
RANDOM_DATASETS = ("shuffle", "random", "sample_from_datasets", "rejection_resample", "shuffle_and_repeat")
"""Functions of `tf.data` with an argument ``seed``."""


def before_first_tape(action: Callable[[], None]) -> None:
    """Runs the action in a rank before the first tape records anything."""
    global _before_tapes
    _before_tapes = action


def install() -> None:
    """Prepares TensorFlow for a rank, now or as soon as the script imports it.

    On a job of one rank it chooses GPUs if TNT_GPUS_PER_NODE is set, and threads if TNT_REPRODUCIBLE is, and nothing else.
    """
    if not (environment.in_job() or settings.is_set("TNT_REPRODUCIBLE") or settings.is_set("TNT_GPUS_PER_NODE")):
        return
    if "tensorflow" in sys.modules:
        _prepare(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, _AfterTensorFlow())


def uninstall() -> None:
    """Undoes `install` where TensorFlow has not been imported yet, in a process whose forks will be ranks."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterTensorFlow)]


def _prepare(tf: ModuleType) -> None:
    if environment.in_job():
        seed_datasets(tf)
        files_by_rank(tf)
        made_datasets.note(tf)
        if _before_tapes is not None:
            _run_before_tapes(tf, _before_tapes)
    gpus.choose(tf)
    if settings.reproducible() is not None:
        threads.share_cores()  # TensorFlow looks when it starts its threads, with the first operation


def seed_datasets(tf: ModuleType) -> None:
    """Makes ``dataset.shuffle(n)`` and the like without a seed use the job's one, unless the script has set a global seed."""
    for owner in (tf.data.Dataset, tf.data.experimental):
        for name in RANDOM_DATASETS:
            original = vars(owner).get(name)
            if original is None or hasattr(original, "_tnt_seeded"):
                continue
            is_static = isinstance(original, staticmethod)
            seeded = _seeded(original.__func__ if is_static else original)
            setattr(owner, name, staticmethod(seeded) if is_static else seeded)


def _seeded(original: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with the job's seed where the caller gives none."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def seeded(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind_partial(*args, **kwargs).arguments.get("seed")
        if given is None and not _own_shuffles and global_seed() is None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments["seed"] = agreed_seed()
            return original(*bound.args, **bound.kwargs)
        return original(*args, **kwargs)

    seeded._tnt_seeded = True  # type: ignore[attr-defined]
    return seeded


def files_by_rank(tf: ModuleType) -> None:
    """Makes datasets of several ranks write a file for each rank where TensorFlow has one writer for a file.

    ``cache(file)`` and ``snapshot(path)`` read what they wrote. ``save(path)`` of the master writes to the path itself, and
    ``load(path)`` of another rank reads what that rank saved.
    """
    saved: dict[str, str] = {}  # by the path that the script named

    def rank_path(what: str, path: Any, master_has_it: bool = False) -> Any:
        from tarantella import runtime

        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or runtime.get_size() == 1:
            return path
        if master_has_it and runtime.is_master_rank():
            return path
        own = f"{os.fspath(path)}.rank{runtime.get_rank()}"
        runtime.logger.info("dataset.%s(%r): each rank has files of its own, this one in %s", what, os.fspath(path), own)
        return own

    def save(path: Any) -> Any:
        saved[os.path.abspath(path)] = own = rank_path("save", path, master_has_it=True)
        return own

    ways: dict[str, Callable[[Any], Any]] = {
        "cache": lambda path: rank_path("cache", path),
        "snapshot": lambda path: rank_path("snapshot", path),
        "save": save,
        "load": lambda path: saved.get(os.path.abspath(path), path),
    }
    for name, path_of in ways.items():
        original = vars(tf.data.Dataset)[name]
        if not hasattr(getattr(tf.data.Dataset, name), "_tnt_by_rank"):
            is_static = isinstance(original, staticmethod)
            changed = _with_path(original.__func__ if is_static else original, path_of)
            setattr(tf.data.Dataset, name, staticmethod(changed) if is_static else changed)


def _with_path(original: Callable[..., Any], path_of: Callable[[Any], Any]) -> Callable[..., Any]:
    """The same function with another value of its argument ``path`` or ``filename``, if that is given."""
    signature = inspect.signature(original)
    name = "filename" if "filename" in signature.parameters else "path"

    @functools.wraps(original)
    def changed(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        if name in bound.arguments:
            bound.arguments[name] = path_of(bound.arguments[name])
        return original(*bound.args, **bound.kwargs)

    changed._tnt_by_rank = True  # type: ignore[attr-defined]
    return changed


def shuffle_by_rank() -> None:
    """From now on each rank shuffles in an order of its own, for scripts that give every rank data of its own."""
    global _own_shuffles
    _own_shuffles = True


def _run_before_tapes(tf: ModuleType, action: Callable[[], None]) -> None:
    if not getattr(tf.GradientTape.__enter__, "_tnt_first", False):
        first_gradient.run_before(tf, action, "__enter__")._tnt_first = True  # type: ignore[attr-defined]


class _AfterTensorFlow(first_gradient.AfterTensorFlow):
    """Prepares TensorFlow: `uninstall` knows it by its class."""

    def __init__(self) -> None:
        super().__init__(_prepare)
