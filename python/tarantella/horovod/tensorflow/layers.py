"""Layers of Keras that communicate, with Horovod's arguments."""

from typing import Any

from tarantella.keras import layers


class SyncBatchNormalization(layers.SyncBatchNormalization):
    """`tnt.keras.layers.SyncBatchNormalization`, with the argument `fused` of Keras before 3.

    Args:
        fused: False: a fused kernel knows its own rank's samples alone. Others, by their names: as
            `keras.layers.BatchNormalization`.

    Raises:
        ValueError: `fused` is not False.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused is not False:
            raise ValueError(f"hvd.SyncBatchNormalization(fused={fused!r}): only False; give other arguments by their names")
        super().__init__(**kwargs)


# Files identify the class by these names.
SyncBatchNormalization.__module__ = layers.SyncBatchNormalization.__module__
SyncBatchNormalization.__name__ = layers.SyncBatchNormalization.__name__
