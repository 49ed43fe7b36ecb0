"""`import tarantella.horovod.keras as hvd`: the same as `tarantella.horovod.tensorflow.keras`."""

from typing import Any

from tarantella.horovod.keras import callbacks as callbacks
from tarantella.horovod.keras import elastic as elastic
from tarantella.horovod.tensorflow import keras as _hvd

__all__ = [*_hvd.__all__]


def __getattr__(name: str) -> Any:
    return getattr(_hvd, name)
