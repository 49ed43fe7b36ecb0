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
from tarantella.keras.data.split import Share
from tarantella.keras.reduction import device, device_placement, gpu_stream, ops
from tarantella.keras.reduction.reducer import Reducer, Spec
from tarantella.keras.step.current_step import CurrentStep
from tarantella.keras.step.gradient_reduction import GradientReduction

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
    count, load, open_device = _native.device_count, gpu_stream.load, _native.check_device
    reasons = []
    try:
        for devices in ((0, "no driver"), (1, "")):
            _native.device_count = lambda devices=devices: devices
            reasons.append(device._obstacle(1))

        def fail() -> None:
            raise tnt.UnsupportedError("no compiler")

        def refuse(number: int) -> None:
            raise tnt.TarantellaError(f"no kernel image for CUDA device {number}")

        _native.device_count, _native.check_device = (lambda: (2, "")), refuse
        reasons.append(device._obstacle(1))
        _native.check_device = lambda _: None
        gpu_stream.load = fail
        reasons.append(device._obstacle(1))
        gpu_stream.load = lambda: SimpleNamespace(tnt_tensorflow_gpu_stream=None)
        reasons.append(device._obstacle(1))
    finally:
        _native.device_count, gpu_stream.load, _native.check_device = count, load, open_device
    return reasons


@check
def a_device_that_is_not_there() -> Any:
    """The library's own answer."""
    try:
        _native.check_device(1000)
    except tnt.TarantellaError as error:
        return str(error)
    return "it is there"


@check
def ranks_decide_alike() -> Any:
    """All can; one cannot."""
    found, messages = [], log_messages()
    device_placement.visible_gpus, device_placement.accelerators = lambda: [RANK], lambda: ["GPU"]
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
                Reducer.reduce(reducer, [tf.ones(2), tf.ones(3)])
        devices.append(sorted({f"{op.type} {op.device}" for op in graph.get_operations() if op.type.startswith("Tnt")}))
    return devices


@check
def the_scale_is_computed_where_it_is_read() -> Any:
    """The devices of all ops between the numbers of samples and a Start, in a step that is placed on a GPU."""
    tnt_model = SimpleNamespace()
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:7"):
        samples, total = (tf.compat.v1.placeholder(tf.int64, [], name) for name in ("samples", "total"))
        step = CurrentStep()
        reduction = GradientReduction(tnt_model, SimpleNamespace(), step, lambda grads, variables: None)  # type: ignore[arg-type]
        reducer: Any = SimpleNamespace(buckets=[[0]], attachment=1, device=0)
        with step.running(Share(samples, total, total), True):
            Reducer.reduce(reducer, [tf.ones(2)], reduction.weight())
    (start,) = [op for op in graph.get_operations() if op.type == "TntStart"]
    found, queue = set(), [start.inputs[0].op]
    while queue:
        op = queue.pop()
        if op.type != "Placeholder":
            found.add(f"{op.type} {op.device}")
            queue += [tensor.op for tensor in op.inputs]
    return sorted(found)


@check
def the_host_reduces_what_a_gpu_cannot() -> Any:
    """A reducer of gradients on ranks that decided for the host, by ops that are placed on the CPU."""
    reducer = Reducer("gradients", [Spec("a", 3, "float32")], gradients=True)
    (total,) = tf.function(lambda x: reducer.reduce([x], 0.5))(tf.constant([1.0, 2.0, 3.0]) * (RANK + 1))
    reducer.close()
    return [reducer.device, np.asarray(total).tolist()]


run(sys.argv[1])
