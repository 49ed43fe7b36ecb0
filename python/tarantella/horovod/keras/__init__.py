"""`import tarantella.horovod.keras as hvd`: the same as `tarantella.horovod.tensorflow.keras`."""

import sys
from typing import Any

from tarantella.horovod.tensorflow import keras as _hvd
from tarantella.horovod.tensorflow.keras import callbacks as callbacks
from tarantella.horovod.tensorflow.keras import elastic as elastic

__all__ = [*_hvd.__all__]

sys.modules.update({f"{__name__}.callbacks": callbacks, f"{__name__}.elastic": elastic})  # `import horovod.keras.callbacks`


def __getattr__(name: str) -> Any:
    return getattr(_hvd, name)
