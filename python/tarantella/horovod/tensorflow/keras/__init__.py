"""`import tarantella.horovod.tensorflow.keras as hvd`: Horovod for Keras, whose collectives give tensors."""

from typing import Any

import tensorflow as tf

from tarantella.horovod import tensorflow as _hvd
from tarantella.horovod.tensorflow import Average, Compression
from tarantella.horovod.tensorflow.keras import callbacks as callbacks
from tarantella.horovod.tensorflow.keras import elastic as elastic
from tarantella.keras import adapter as _adapter

__all__ = sorted({*_hvd.__all__, "callbacks", "elastic", "load_model"})


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
    process_set: Any = _hvd.global_process_set,
) -> Any:
    """The reduction of a number, array or tensor over ranks."""
    return _hvd.allreduce(
        value,
        average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
        process_set=process_set,
    )


def allgather(value: Any, name: str | None = None, process_set: Any = _hvd.global_process_set) -> Any:
    """All ranks' rows one after another."""
    return _hvd.allgather(value, name, process_set=process_set)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: Any = _hvd.global_process_set) -> Any:
    """The value of `root_rank`, on all ranks. A number of Python's becomes int64, as `fit` of legacy Keras takes its epochs."""
    given = tf.constant(value, tf.int64) if type(value) is int else value
    return _hvd.broadcast(given, root_rank, name, process_set=process_set)


def reducescatter(
    value: Any, name: str | None = None, op: Any = Average, process_set: Any = _hvd.global_process_set, **scales: float
) -> Any:
    """This rank's rows of the reduction."""
    return _hvd.reducescatter(value, op=op, name=name, process_set=process_set, **scales)


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A model from a file, whose optimizer reduces gradients over ranks.

    Args:
        custom_optimizers: classes of optimizers that Keras does not have.
        legacy_opts: ignored.
    """
    known = {cls.__name__: cls for cls in custom_optimizers or ()} | (custom_objects or {})
    model = _adapter.keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is not None:
        _hvd.DistributedOptimizer(model.optimizer, compression=compression)
    return model


def __getattr__(name: str) -> Any:
    return getattr(_hvd, name)
