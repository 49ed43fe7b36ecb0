"""How ranks decide where gradients are reduced, and where ops run then. The GPUs are made up: nothing is computed on them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels

import tarantella as tnt
from checks import check, log_messages, run
from tarantella import _native
from tarantella.keras.reduction import device, device_placement, gpu_stream, ops
from tarantella.keras.reduction.reducer import Reducer, Spec

RANK = tnt.get_rank()


@check
def without_gpus() -> Any:
    with tf.Graph().as_default(), device_placement.device_of_ops(device_placement.HOST):
        return [device.device_of_gradients(), tf.constant(1).device]


@check
def kernels_are_registered() -> Any:
    ops.library()
    found = [k for op in ("TntStart", "TntFinish") for k in kernels.get_registered_kernels_for_op(op).kernel]
    return sorted([k.op, k.device_type, list(k.host_memory_arg)] for k in found)


@check
def why_not() -> Any:
    """The reasons that a rank finds, one after another."""
    count, load = _native.device_count, gpu_stream.load
    reasons = []
    try:
        for devices in ((0, "no driver"), (1, "")):
            _native.device_count = lambda devices=devices: devices
            reasons.append(device._obstacle(1))

        def fail() -> None:
            raise tnt.UnsupportedError("no compiler")

        _native.device_count = lambda: (2, "")
        gpu_stream.load = fail
        reasons.append(device._obstacle(1))
        gpu_stream.load = lambda: SimpleNamespace(tnt_tensorflow_gpu_stream=None)
        reasons.append(device._obstacle(1))
    finally:
        _native.device_count, gpu_stream.load = count, load
    return reasons


@check
def ranks_decide_alike() -> Any:
    """All can; one cannot."""
    found, messages = [], log_messages()
    device_placement.visible_gpus = lambda: [RANK]
    for reasons in (["", ""], ["", "no compiler"]):
        device.device_of_gradients.cache_clear()
        device._obstacle = lambda _, reasons=reasons: reasons[RANK]
        found.append(device.device_of_gradients())
    return [*found, messages[-1]]


@check
def ops_run_where_gradients_lie() -> Any:
    devices = []
    for place in (device_placement.HOST, 3):
        with tf.Graph().as_default() as graph:
            reducer: Any = SimpleNamespace(buckets=[[1], [0]], attachment=1, device=place)
            with tf.device("/device:GPU:7"):  # whatever else is said
                ops.reduce(reducer, [tf.ones(2), tf.ones(3)], tf.constant(1.0, tf.float64))
        devices.append(sorted({f"{op.type} {op.device}" for op in graph.get_operations() if op.type.startswith("Tnt")}))
    return devices


@check
def the_host_reduces_what_a_gpu_cannot() -> Any:
    """A reducer of gradients on ranks that decided for the host, by ops that are placed on the CPU."""
    reducer = Reducer("gradients", [Spec("a", 3, "float32")], gradients=True)
    (total,) = tf.function(lambda x: reducer.reduce([x], 0.5))(tf.constant([1.0, 2.0, 3.0]) * (RANK + 1))
    reducer.close()
    return [reducer.device, np.asarray(total).tolist()]


run(sys.argv[1])
