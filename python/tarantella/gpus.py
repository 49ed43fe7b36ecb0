"""Gives each rank of a node its own GPU before TensorFlow takes all of them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from tarantella import environment, mpi, settings
from tarantella.errors import InvalidArgumentError

if TYPE_CHECKING:
    from types import ModuleType

logger = logging.getLogger("TNT_LIB")


def choose(tf: ModuleType) -> None:
    """Lets TensorFlow see one GPU, by this rank's number on its node, if there are several and the script has not chosen.

    TensorFlow takes memory on every GPU that it sees as soon as it computes, so this happens when it is imported. With
    TNT_GPUS_PER_NODE=n ranks share the first n of those that CUDA_VISIBLE_DEVICES leaves, with 0 they see none. A rank's
    TensorFlow takes memory as it needs it, unless TF_FORCE_GPU_ALLOW_GROWTH says otherwise: it would leave none for buckets
    and for NCCL.

    Raises:
        InvalidArgumentError: there are fewer GPUs than TNT_GPUS_PER_NODE says, or TensorFlow has taken them already.
    """
    wanted, rank = settings.gpus_per_node(), environment.local_rank()
    gpus = tf.config.list_physical_devices("GPU")
    if wanted is not None and wanted > len(gpus):
        raise InvalidArgumentError(f"TNT_GPUS_PER_NODE={wanted}: this process sees {len(gpus)}: leave it unset for all of them")
    if not gpus or tf.config.get_visible_devices("GPU") != gpus:
        return
    grows = rank is not None and "TF_FORCE_GPU_ALLOW_GROWTH" not in os.environ
    usable = gpus if wanted is None else gpus[: max(wanted, 0)]
    chosen = usable if rank is None or not usable else [usable[rank % len(usable)]]
    shared = bool(chosen) and rank is not None and mpi.local_size() > len(usable)
    try:
        if chosen != gpus:
            tf.config.set_visible_devices(chosen, "GPU")
        if chosen and (shared or grows):
            tf.config.experimental.set_memory_growth(chosen[0], True)
    except (RuntimeError, ValueError):
        if chosen == gpus and not shared:  # this GPU is the rank's own, and TensorFlow has its memory
            return
        raise InvalidArgumentError(
            "TensorFlow has used GPUs before this rank could choose its own: import tarantella before anything is computed"
        ) from None
    perhaps_own = len(gpus) == 1 and mpi.started_by_mpi()  # Slurm can show each rank a different GPU
    if shared and not perhaps_own and rank is not None and rank >= len(usable):
        logger.warning("this node has more ranks than its %d GPUs: rank %d of it shares one with rank %d, and each takes the "
                       "memory that it needs", len(usable), rank, rank % len(usable))  # fmt: skip
