"""Unseeded `tf.data.Dataset.shuffle` with the same seed on all ranks.

Every rank takes its part of the same global batches, so all ranks must shuffle alike. A script makes its datasets
before it hands them to us, hence the method itself is given a seed, as soon as TensorFlow is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tarantella import environment, gpus, mpi

if TYPE_CHECKING:
    from collections.abc import Sequence


def install() -> None:
    """Readies TensorFlow for a rank, now or as soon as the script imports it; nothing on a job of one rank.

    Except for its GPUs, if the environment says how many there shall be, and for its threads, if bits shall not depend on them.
    """
    if not (environment.in_job() or environment.has_reproducible()) and environment.gpus_per_node() is None:
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
    if environment.reproducible() is not None:
        mpi.share_cores()  # TensorFlow looks when it starts its threads, with the first operation


def seed_shuffles(tf: ModuleType) -> None:
    """Makes ``dataset.shuffle(n)`` without a seed use the job's one, unless the script has set a global seed."""
    original = tf.data.Dataset.shuffle
    if getattr(original, "_tnt_seeded", False):
        return

    def shuffle(self: Any, buffer_size: Any, seed: Any = None, *args: Any, **kwargs: Any) -> Any:
        if seed is None and global_seed() is None:
            seed = environment.agreed_seed()
        return original(self, buffer_size, seed, *args, **kwargs)

    shuffle.__doc__ = original.__doc__
    shuffle._tnt_seeded = True  # type: ignore[attr-defined]
    tf.data.Dataset.shuffle = shuffle


def global_seed() -> int | None:
    """What the script gave to `tf.random.set_seed` or `keras.utils.set_random_seed`, if anything."""
    from tensorflow.python.eager import context  # no public way to ask

    seed: int | None = context.global_seed()
    return seed


def agree_on_global_seed(seed: int | None = None) -> None:
    """Arrays are shuffled by a random op of TensorFlow: without a seed of the script's, all ranks take this or the job's."""
    if global_seed() is None:
        import tensorflow as tf

        tf.random.set_seed(environment.agreed_seed() if seed is None else seed)


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
