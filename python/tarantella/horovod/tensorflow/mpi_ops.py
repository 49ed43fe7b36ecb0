"""`horovod.tensorflow.mpi_ops`: the collectives, under the name of the module that scripts take them from."""

from __future__ import annotations

from typing import Any

from tarantella.horovod import tensorflow as _hvd


def __getattr__(name: str) -> Any:
    return getattr(_hvd, name)
