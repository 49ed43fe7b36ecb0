"""Unseeded `tf.data.Dataset.shuffle` with the same seed on all ranks.

Every rank takes its part of the same global batches, so all ranks must shuffle alike. A script makes its datasets
before it hands them to us, hence the method itself is given a seed, as soon as TensorFlow is imported.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import secrets
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tarantella import environment, gpus, mpi, settings, threads, variables

if TYPE_CHECKING:
    from collections.abc import Sequence


def install() -> None:
    """Readies TensorFlow for a rank, now or as soon as the script imports it; nothing on a job of one rank.

    Except for its GPUs, if the environment says how many there shall be, and for its threads, if bits shall not depend on them.
    """
    if not (environment.in_job() or settings.has_reproducible()) and settings.gpus_per_node() is None:
        return
    if "tensorflow" in sys.modules:
        _make_ready(sys.modules["tensorflow"])
    else:
        sys.meta_path.insert(0, _AfterTensorFlow())


def uninstall() -> None:
    """Undoes `install` where TensorFlow has not been imported yet: this process will not be a rank, but its forks."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterTensorFlow)]


def _make_ready(tf: ModuleType) -> None:
    if environment.in_job():
        seed_shuffles(tf)
    gpus.choose(tf)
    if settings.reproducible() is not None:
        threads.share_cores()  # TensorFlow looks when it starts its threads, with the first operation


def seed_shuffles(tf: ModuleType) -> None:
    """Makes ``dataset.shuffle(n)`` without a seed use the job's one, unless the script has set a global seed."""
    original = tf.data.Dataset.shuffle
    if getattr(original, "_tnt_seeded", False):
        return

    def shuffle(self: Any, buffer_size: Any, seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        if seed is None and global_seed() is None:
            seed = agreed_seed()
        return original(self, buffer_size, seed, *args, **kwargs)

    shuffle.__doc__ = original.__doc__
    shuffle._tnt_seeded = True  # type: ignore[attr-defined]
    tf.data.Dataset.shuffle = shuffle


def global_seed() -> int | None:
    """What the script gave to `tf.random.set_seed` or `keras.utils.set_random_seed`, if anything."""
    import tensorflow as tf

    found: list[int | None] = []
    with tf.init_scope():  # a new graph takes the seed; nothing else that is public tells it
        tf.function(lambda: found.append(tf.compat.v1.get_default_graph().seed), autograph=False).get_concrete_function()
    return found[0]


def agree_on_global_seed(seed: int | None = None) -> None:
    """Arrays are shuffled by a random op of TensorFlow: without a seed of the script's, all ranks take this or the job's."""
    if global_seed() is None:
        import tensorflow as tf

        tf.random.set_seed(agreed_seed() if seed is None else seed)


def agreed_seed() -> int:
    """A random number that is the same on all ranks of the job, however often it is started again, and another in the next job.

    Collective where neither our launcher nor the one of MPI gives the job a name.
    """
    token = os.environ.get(variables.JOB) or os.environ.get(variables.TOKEN, "")
    if not token:
        token = _name_of_mpi_job() if mpi.started_by_mpi() else str(os.getpid())
    return int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "little") & 0x7FFFFFFF


@functools.cache
def _name_of_mpi_job() -> str:
    name = mpi.job_name()
    if not name:
        from tarantella.collectives import broadcast  # imports NumPy

        name = str(broadcast(secrets.randbits(62)))
    return name


class _AfterTensorFlow(importlib.abc.MetaPathFinder):
    """Lets the usual finders import TensorFlow, then readies it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            _make_ready(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
