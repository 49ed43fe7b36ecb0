"""Each rank of a node its own GPU, before TensorFlow has taken all of them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tarantella import environment

if TYPE_CHECKING:
    from types import ModuleType

logger = logging.getLogger("TNT_LIB")


def choose(tf: ModuleType) -> None:
    """Lets TensorFlow see one GPU, by this rank's number on its node, where there are several and nobody has chosen.

    TensorFlow takes memory on every GPU it sees as soon as it computes, so this has to be done when it is imported.
    """
    local_rank = environment.local_rank()
    gpus = tf.config.list_physical_devices("GPU")
    if local_rank is None or len(gpus) < 2 or tf.config.get_visible_devices("GPU") != gpus:
        return
    tf.config.set_visible_devices(gpus[local_rank % len(gpus)], "GPU")
    if local_rank >= len(gpus):
        logger.warning("this node has %d GPUs and more ranks than that: ranks %d and %d of it share one, and each wants all of "
                       "its memory: start fewer ranks", len(gpus), local_rank % len(gpus), local_rank)  # fmt: skip
