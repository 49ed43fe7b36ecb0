"""The device on which gradients are reduced: the GPU that makes them, if every rank has one and can."""

import functools

import numpy as np
import tensorflow as tf

from tarantella import _native, collectives, generations, gpus, runtime
from tarantella.errors import InvalidArgumentError, TarantellaError
from tarantella.keras.reduction import device_placement, gpu_stream, ops


@functools.cache
def device_of_gradients() -> int:
    """The CUDA device on which this rank reduces gradients, or HOST. The first call is collective, with a GPU or without.

    In an elastic job it is the host, and nothing is agreed on: a newcomer would ask ranks that know the answer.

    Raises:
        InvalidArgumentError: this node has more ranks than devices, and nobody has asked for that.
    """
    if shortage := gpus.shortage(tf):
        raise InvalidArgumentError(shortage)
    visible = device_placement.visible_gpus()
    if generations.is_elastic():
        return device_placement.HOST
    reason = _obstacle(visible[0]) if visible else "this rank has no GPU"
    with_gpu, able = collectives.all_reduce(np.array([bool(visible), not reason], np.int32))
    if able == runtime.world().size:
        runtime.logger.info("gradients are reduced on the GPU, CUDA device %d", visible[0])
        return visible[0]
    if with_gpu > 0:
        reason = reason or _of_another_rank(int(with_gpu))
        runtime.logger.warning("gradients travel through host memory, which is slow: %s", reason)
        return device_placement.HOST
    for kind in device_placement.accelerators():
        runtime.logger.info("gradients travel through host memory, as Tarantella has no kernels for devices of type %s", kind)
    return device_placement.HOST


def device_of_reducer(has_hook: bool) -> int:
    """Where one reducer of gradients has them. Collective. A hook is called on the host, on whichever ranks it is."""
    found = device_of_gradients()
    if found == device_placement.HOST or not collectives.all_reduce(int(has_hook), "max"):
        return found
    return device_placement.HOST


def has_usable_gpu() -> bool:
    """Whether this rank alone could reduce on a GPU."""
    visible = device_placement.visible_gpus()
    return bool(visible) and not _obstacle(visible[0])


def _of_another_rank(with_gpu: int) -> str:
    ranks = runtime.world().size
    return "another rank cannot reduce on its GPU" if with_gpu == ranks else f"{ranks - with_gpu} of {ranks} ranks have no GPU"


def _obstacle(gpu: int) -> str:
    """The reason why this rank cannot reduce on this GPU; empty if it can."""
    if other := gpu_stream.other_vendor():
        return other
    devices, why = _native.device_count()
    if gpu >= devices:
        return why or f"TensorFlow uses CUDA device {gpu}, and this process can use {devices} of them"
    try:
        _native.check_device(gpu)
        ops.set_stream_of(gpu_stream.load().tnt_tensorflow_gpu_stream)
    except TarantellaError as error:
        return str(error)
    return ""
