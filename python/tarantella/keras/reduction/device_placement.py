"""The device on which a reducer's ops run: where its tensors lie, whatever TensorFlow would choose."""

from contextlib import AbstractContextManager, nullcontext

import tensorflow as tf

from tarantella import _native, gpus

HOST = _native.DEVICE_HOST
"""The device of a reducer whose tensors lie in host memory. Any other number is a CUDA device."""


def visible_gpus() -> list[int]:
    """The numbers, as CUDA counts, of the GPUs that TensorFlow uses."""
    return [int(gpu.name.rpartition(":")[2]) for gpu in tf.config.get_visible_devices("GPU")]


def accelerators() -> list[str]:
    """The types of all devices that TensorFlow uses beside the CPU, each once."""
    return gpus.accelerators(tf.config.get_visible_devices())


def device_of_ops(device: int) -> AbstractContextManager[object]:
    """Places ops on TensorFlow's first GPU, or on the CPU; changes nothing where there is no other device than that."""
    if device == HOST and not accelerators():
        return nullcontext()
    placed: AbstractContextManager[object] = tf.device("/device:CPU:0" if device == HOST else "/device:GPU:0")
    return placed


def on_host() -> AbstractContextManager[object]:
    """Places ops on the CPU: those that read host memory."""
    return device_of_ops(HOST)
