"""The device on which gradients are reduced: the GPU that makes them, if every rank can."""

import functools

import tensorflow as tf

from tarantella import _native, collectives, gpus, runtime
from tarantella.errors import InvalidArgumentError, TarantellaError
from tarantella.keras.reduction import device_placement, gpu_stream, ops


@functools.cache
def device_of_gradients() -> int:
    """The CUDA device on which this rank reduces gradients, or HOST. The first call is collective, on ranks with a GPU.

    Raises:
        InvalidArgumentError: this node has more ranks than devices, and nobody has asked for that.
    """
    if shortage := gpus.shortage(tf):
        raise InvalidArgumentError(shortage)
    visible = device_placement.visible_gpus()
    if not visible:
        for kind in dict.fromkeys(device_placement.accelerators()):
            runtime.logger.info(
                "gradients travel through host memory, as Tarantella has no kernels for devices of type %s", kind
            )
        return device_placement.HOST
    reason = _obstacle(visible[0])
    if bool(collectives.all_reduce(int(not reason), "min")):
        runtime.logger.info("gradients are reduced on the GPU, CUDA device %d", visible[0])
        return visible[0]
    reason = reason or "another rank cannot reduce on its GPU"
    runtime.logger.warning("gradients travel through host memory, which is slow: %s", reason)
    return device_placement.HOST


def _obstacle(gpu: int) -> str:
    """The reason why this rank cannot reduce on this GPU; empty if it can."""
    devices, why = _native.device_count()
    if gpu >= devices:
        return why or f"TensorFlow uses CUDA device {gpu}, and this process can use {devices} of them"
    try:
        _native.check_device(gpu)
        ops.set_stream_of(gpu_stream.load().tnt_tensorflow_gpu_stream)
    except TarantellaError as error:
        return str(error)
    return ""
