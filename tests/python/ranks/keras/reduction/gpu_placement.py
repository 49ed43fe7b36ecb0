"""How ranks decide where gradients are reduced, and where ops run then. The GPUs are made up: nothing is computed on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import kernels

import tarantella as tnt
from checks import check, log_messages, run
from tarantella import _native, variables
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


@contextmanager
def made_up(gpus: list[int], obstacle: str) -> Iterator[None]:
    """A rank with these GPUs, which nothing keeps from reducing there, or this. Decides anew, and forgets it afterwards."""
    real = device_placement.visible_gpus, device_placement.accelerators, device._obstacle
    device_placement.visible_gpus, device_placement.accelerators = lambda: gpus, lambda: ["GPU"] if gpus else []
    device._obstacle = lambda _: obstacle
    device.device_of_gradients.cache_clear()
    try:
        yield
    finally:
        device_placement.visible_gpus, device_placement.accelerators, device._obstacle = real
        device.device_of_gradients.cache_clear()


@check
def ranks_decide_alike() -> Any:
    """All can; one cannot."""
    found, messages = [], log_messages()
    for reasons in (["", ""], ["", "no compiler"]):
        with made_up([RANK], reasons[RANK]):
            found.append(device.device_of_gradients())
    return [*found, messages[-1]]


@check
def a_rank_may_have_no_gpu() -> Any:
    """As on a node without GPUs, or where some ranks hide theirs: what is decided, said and summed then, on all ranks."""
    messages = log_messages()
    with made_up([0] if RANK == 0 else [], ""):
        reducer = Reducer("gradients", [Spec("a", 2, "float32")], gradients=True)
        (total,) = tf.function(lambda x: reducer.reduce([x], 0.5))(tf.constant([1.0, 2.0]) * (RANK + 1))
        reducer.close()
    said = [message for message in messages if message.startswith("gradients travel")]
    return [reducer.device, said, np.asarray(total).tolist()]


@check
def a_hook_is_called_on_the_host() -> Any:
    """Also if one rank alone has one; other reducers of these ranks use the GPU."""
    with made_up([RANK], ""):
        return [device.device_of_reducer(has_hook) for has_hook in (False, RANK == 1, False)]


@check
def an_elastic_job_asks_no_other_rank() -> Any:
    """A newcomer would ask ranks that know the answer: rank 0 asks here, and rank 1 does not."""
    os.environ[variables.ELASTIC] = "1"
    try:
        with made_up([0], ""):
            return [device.device_of_gradients() if RANK == 0 else None, device.has_usable_gpu()]
    finally:
        del os.environ[variables.ELASTIC]


@check
@made_up([RANK], "")
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
@made_up([RANK], "")
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
@made_up([RANK], "no compiler")
def the_host_reduces_what_a_gpu_cannot() -> Any:
    """A reducer of gradients on ranks that decided for the host, by ops that are placed on the CPU."""
    reducer = Reducer("gradients", [Spec("a", 3, "float32")], gradients=True)
    (total,) = tf.function(lambda x: reducer.reduce([x], 0.5))(tf.constant([1.0, 2.0, 3.0]) * (RANK + 1))
    reducer.close()
    return [reducer.device, np.asarray(total).tolist()]


run(sys.argv[1])
