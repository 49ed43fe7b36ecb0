"""`horovod.common.util`: the functions there that scripts use."""

import itertools
from collections.abc import Sequence
from typing import Any

from tarantella.horovod.common.basics import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    mpi_built,
    nccl_built,
    rocm_built,
)
from tarantella.installation import page

__all__ = [
    "ccl_built", "cuda_built", "ddl_built", "gloo_built", "gpu_available", "is_iterable", "mpi_built", "nccl_built",
    "num_rank_is_power_2", "rocm_built", "split_list",
]  # fmt: skip


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Whether the library can use a GPU of this machine. Both arguments are ignored."""
    return cuda_built()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number of ranks is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """The items in so many parts of about equal size, in their order; the first ones may have one more."""
    size, longer = divmod(len(items), parts)
    begins = [part * size + min(part, longer) for part in range(parts + 1)]
    return [items[begin:end] for begin, end in itertools.pairwise(begins)]


def is_iterable(x: Any) -> bool:
    """Whether a loop can run over it."""
    return hasattr(x, "__iter__")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"horovod.common.util.{name}: not offered by Tarantella ({page('horovod.md')})")
