"""Training on devices of a plug-in (tests/fake_device), of which Tarantella knows nothing but their type."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, log_messages, raised, run

PLUG_IN = ctypes.CDLL(os.environ["FAKE_DEVICE"])
messages = log_messages()


def losses(wrap: Any = lambda model: model) -> list[float]:
    keras.utils.set_random_seed(1)
    model = wrap(keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    x = np.random.default_rng(0).normal(size=(30, 4)).astype("f4")
    history = model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*history, model.evaluate(x, x.sum(1, keepdims=True), verbose=0)]


@check
def devices() -> list[str]:
    return [*(device.name for device in tf.config.get_visible_devices("TNTFAKE")), tf.linalg.matmul([[1.0]], [[1.0]]).device]


@check
def trained() -> dict[str, Any]:
    """On the fake device by all ranks, and with plain Keras on the CPU."""
    before = PLUG_IN.fake_device_copies(1)
    found = losses(tnt.Model)
    copies = PLUG_IN.fake_device_copies(1) - before
    with tf.device("/device:CPU:0"):
        serial = losses(lambda model: tnt.Model(model, tnt.ParallelStrategy.NONE))
    return {"found": found, "serial": serial, "copies": copies, "messages": list(messages)}


@check
def trained_if_asked() -> list[Any]:
    """With more ranks than devices: what is said, and the losses where ranks are to share."""
    said = raised(losses, tnt.Model) if tnt.get_size() > len(tf.config.list_physical_devices("TNTFAKE")) else []
    os.environ["TNT_GPUS_PER_NODE"] = "1"
    try:
        return [said, losses(tnt.Model)]
    finally:
        del os.environ["TNT_GPUS_PER_NODE"]


@check
def copies_begin_in_backward() -> list[int]:
    """How often the first layer's gradient has seen a copy of the last layer's begin, in a step, and how often not."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(units, "relu") for units in (6, 10, 14, 18, 22)]
    model = tnt.Model(keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)]))
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    PLUG_IN.fake_device_hold(ctypes.c_uint64(6 * 4), ctypes.c_uint64(22 * 4))
    model.fit(np.ones((24, 4), "f4"), np.ones((24, 1), "f4"), batch_size=8, shuffle=False, verbose=0)
    return [PLUG_IN.fake_device_held(1), PLUG_IN.fake_device_held(0)]


@check
def reduced_under_hard_placement() -> list[list[float]]:
    """Tensors of the device, in a graph and eagerly, where TensorFlow places nothing by its own choice."""
    ones, numbers = tf.ones([2, 2]), tf.fill([2, 1], tnt.get_rank() + 1.0)
    tf.config.set_soft_device_placement(False)
    try:
        with tf.device("/device:TNTFAKE:0"):
            matrix = tf.linalg.matmul(ones, numbers)
            summed = tf.function(tnt.all_reduce)(matrix)
            return [np.ravel(summed).tolist(), np.ravel(tnt.all_reduce(matrix)).tolist()]
    finally:
        tf.config.set_soft_device_placement(True)


if __name__ == "__main__":
    run(*sys.argv[1:])
