"""`horovod.runner.common.util.env`: the place of a process by its environment, before it joins."""

import os
from typing import Any

from tarantella import variables
from tarantella.installation import page

_NAMES = (
    (variables.RANK, variables.SIZE),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def get_env_rank_and_size() -> tuple[int, int]:
    """The rank and the number of ranks that a launcher has set; 0 and 1 if none has."""
    for rank, size in _NAMES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def __getattr__(name: str) -> Any:
    raise AttributeError(f"horovod.runner.common.util.env.{name}: not offered by Tarantella ({page('horovod.md')})")
