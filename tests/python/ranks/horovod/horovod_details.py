"""Details of Horovod's behaviour that scripts rely on: factors, sparse sums, process sets, names, graphs of TensorFlow 1."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, raised, run

FOLDER = sys.argv[1]

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
RANKS = range(SIZE)


def numbers(rank: int, dtype: Any = np.float32, rows: int = 4) -> np.ndarray:
    return np.random.default_rng(rank).uniform(-100, 100, (rows, 3)).astype(dtype)


@check
def float16() -> dict[str, bool]:
    """Factors that 16 bits do not hold, and the rounding of those that they do."""
    factor = 0.1915194503788923
    x = np.random.default_rng(7).uniform(-100, 100, 1000).astype(np.float16)
    before = (x.astype(np.float32) * np.float32(factor)).astype(np.float16).astype(np.float32) * SIZE
    after = x.astype(np.float32) * SIZE * np.float32(factor)

    def same(found: Any, expected: np.ndarray) -> bool:
        return bool((np.asarray(found) == expected.astype(np.float16)).all())

    rows = tf.constant(np.concatenate([x] * SIZE))
    return {
        "before": same(hvd.allreduce(x, op=hvd.Sum, prescale_factor=factor), before),
        "after": same(hvd.allreduce(x, op=hvd.Sum, postscale_factor=factor), after),
        "grouped": same(hvd.grouped_allreduce([x, x], op=hvd.Sum, postscale_factor=factor)[1], after),
        "scattered before": same(hvd.reducescatter(rows, op=hvd.Sum, prescale_factor=factor), before),
        "scattered after": same(hvd.reducescatter(rows, op=hvd.Sum, postscale_factor=factor), after),
        "huge": abs(float(hvd.allreduce(tf.constant(1e-3, tf.float16), op=hvd.Sum, prescale_factor=70000.0)) / SIZE - 70) < 0.1,
        "tiny": 1e-6 / 2 < float(hvd.allreduce(tf.constant(1000, tf.float16), op=hvd.Sum, prescale_factor=1e-9)) / SIZE < 2e-6,
        "no overflow": float(hvd.allreduce(tf.constant(40000, tf.float16), op=hvd.Sum, postscale_factor=0.5 / SIZE)) == 20000,
        "bfloat16": float(hvd.allreduce(tf.constant(3, tf.bfloat16), op=hvd.Sum, postscale_factor=1 / 3)) == SIZE,
        "compressed": float(hvd.allreduce(1e-3, op=hvd.Sum, compression=hvd.Compression.fp16, postscale_factor=7e7)) > 6e4,
    }


@check
def averages() -> dict[str, bool]:
    """The average is the sum divided by the number of ranks, to the last bit; rows of integers lose nothing."""
    total = sum(numbers(rank) for rank in RANKS)
    found = {
        "dense": bool((hvd.allreduce(numbers(RANK)).numpy() == total / np.float32(SIZE)).all()),
        "in a graph": bool((tf.function(hvd.allreduce)(numbers(RANK)).numpy() == total / np.float32(SIZE)).all()),
    }
    tall = [numbers(rank, rows=SIZE) for rank in RANKS]
    mine = hvd.reducescatter(tall[RANK], op=hvd.Average).numpy()
    found["scattered"] = bool((mine[0] == (sum(tall) / np.float32(SIZE))[RANK]).all())
    rows = hvd.allreduce(tf.IndexedSlices(numbers(RANK), tf.range(4)), op=hvd.Average)
    each = np.concatenate([numbers(rank) / np.float32(SIZE) for rank in RANKS])
    found["rows"] = rows.values.dtype == tf.float32 and bool((rows.values.numpy() == each).all())
    for dtype in (tf.int32, tf.int64, tf.uint8):
        given = tf.IndexedSlices(tf.constant([[1], [3]], dtype), tf.constant([0, 1]))
        slices = hvd.allreduce(given, op=hvd.Average)
        sums = tf.math.unsorted_segment_sum(slices.values, slices.indices, 2)
        found[dtype.name] = np.allclose(sums, [[1], [3]], rtol=1e-14)
        halves = hvd.allreduce(given, op=hvd.Sum, postscale_factor=0.5)
        sums = tf.math.unsorted_segment_sum(halves.values, halves.indices, 2).numpy().ravel().tolist()
        found[f"half of {dtype.name}"] = sums == [SIZE / 2, SIZE * 3 / 2]
        summed = hvd.allreduce(given, op=hvd.Sum)
        found[f"sum of {dtype.name}"] = summed.values.dtype == dtype
    return found


@check
def tensors_of_keras() -> list[bool]:
    x = tf.ones([SIZE, 2])
    found = [hvd_keras.allreduce(x), hvd_keras.allgather(x), hvd_keras.broadcast(x, 0), hvd_keras.reducescatter(x)]
    epoch = hvd_keras.broadcast(RANK + 5, 0)
    return [*(tf.is_tensor(each) for each in found), list(range(epoch, 7)) == [5, 6], f"{epoch}" == "5"]


# ------------------------------------------------------------------------------------------------------ process sets


@check
def outside() -> dict[str, bool]:
    """A rank outside of a process set keeps its gradients, of the tape and of the optimizer, and trains alone."""
    inside = hvd.add_process_set([rank for rank in RANKS if rank != 1])
    mean = np.mean([rank + 1.0 for rank in inside.ranks]) if inside.included() else RANK + 1.0
    variable, local = tf.Variable([1.0, 1.0]), tf.Variable(1.0)

    def gradients(**choices: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable) * (RANK + 1.0) + local * (RANK + 1.0)
        tape = hvd.DistributedGradientTape(tape, process_set=inside, **choices)
        tape.register_local_source(local)
        of_variable, of_local = tape.gradient(loss, [variable, local])
        return [of_variable[1], of_local]

    x = tf.constant(RANK + 1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = x * x
    of_tensor = hvd.DistributedGradientTape(tape, process_set=inside).gradient(loss, x)
    own = RANK + 1.0
    local_mean = own / inside.size() if inside.included() else own
    squares = 2 * mean
    found = {
        "tape": [float(g) for g in gradients()] == [mean, np.float32(local_mean)],
        "in a graph": [float(g) for g in tf.function(gradients)()] == [mean, np.float32(local_mean)],
        "sum": float(gradients(op=hvd.Sum)[0]) == (mean * inside.size() if inside.included() else own),
        "tensor": float(of_tensor) == squares,
    }
    for name, passes in (("once", 1), ("twice", 2)):
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0), process_set=inside, backward_passes_per_step=passes)
        weight = keras.Variable(0.0)
        for _ in range(passes):
            optimizer.apply([tf.constant(own)], [weight])
        found[name] = float(weight) == -mean * passes
    scaled = hvd.DistributedOptimizer(
        keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=4.0), process_set=inside
    )
    weight = keras.Variable(0.0)
    scaled.apply([tf.constant(np.inf if RANK == 1 else own * 4)], [weight])
    found["loss scale"] = float(weight) == (0.0 if RANK == 1 else -mean)
    logs = {"loss": own}
    hvd_keras.callbacks.MetricAverageCallback(process_set=inside).on_epoch_end(0, logs)
    found["metrics"] = logs["loss"] == mean
    refused = raised(hvd.allreduce, 1.0, process_set=inside)[:1]
    found["collective"] = refused == (["WrongArgumentError"] if RANK == 1 else [])
    hvd.remove_process_set(inside)
    return {name: bool(right) for name, right in found.items()}


@check
def parts() -> dict[str, bool]:
    """All collectives and their gradients on [0, 2] and on [1], at the same time."""
    even, odd = hvd.add_process_set([0, 2]), hvd.add_process_set([1])
    mine = even if even.included() else odd
    members, place = mine.ranks, mine.rank()
    x = tf.constant(numbers(RANK, rows=2 * len(members)))
    each = np.stack([numbers(rank, rows=2 * len(members)) for rank in members])
    share = slice(2 * place, 2 * place + 2)
    rows, came = hvd.alltoall(x, splits=[2] * len(members), process_set=mine)

    def gradient(function: Any) -> np.ndarray:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x)) * (RANK + 1.0)
        return np.asarray(tape.gradient(loss, x))

    mean = np.mean([rank + 1.0 for rank in members])
    found = {
        "allreduce": np.allclose(hvd.allreduce(x, process_set=mine), each.mean(0)),
        "grouped": np.allclose(hvd.grouped_allreduce([x, x], op=hvd.Max, process_set=mine)[1], each.max(0)),
        "allgather": np.allclose(hvd.allgather(x, process_set=mine), np.concatenate(each)),
        "broadcast": np.allclose(hvd.broadcast(x, members[-1], process_set=mine), each[-1]),
        "alltoall": np.allclose(rows, np.concatenate(each[:, share])) and came.numpy().tolist() == [2] * len(members),
        "reducescatter": np.allclose(hvd.reducescatter(x, op=hvd.Sum, process_set=mine), each.sum(0)[share], rtol=1e-5),
        "objects": hvd.allgather_object(RANK, process_set=mine) == members,
        "object": hvd.broadcast_object(RANK, members[-1], process_set=mine) == members[-1],
        "of allreduce": np.allclose(gradient(lambda x: hvd.allreduce(x, process_set=mine)), mean),
        "of allgather": np.allclose(gradient(lambda x: hvd.allgather(x, process_set=mine)), mean),
        "of broadcast": np.allclose(gradient(lambda x: hvd.broadcast(x, members[0], process_set=mine)), mean * (place == 0)),
        "root outside": raised(hvd.broadcast, x, 1 if mine is even else 0, process_set=mine)[0] == "WrongArgumentError",
        "op": [int(hvd.process_set_included_op(s.process_set_id)) for s in (even, odd)] == [RANK != 1, RANK == 1],
        "sizes": [int(hvd.size_op(s.process_set_id)) for s in (even, odd)] == [2, 1],
    }
    slices = hvd.allreduce(tf.IndexedSlices(x[:1], [RANK]), process_set=mine)
    found["rows"] = slices.indices.numpy().tolist() == members and np.allclose(slices.values, each[:, 0] / len(members))
    hvd.barrier()
    hvd.remove_process_set(even)
    hvd.remove_process_set(odd)
    return {name: bool(right) for name, right in found.items()}


@check
def unknown_process_set() -> list[Any]:
    unknown = hvd.ProcessSet([0, 1])
    with tf.GradientTape() as tape:
        variable = tf.Variable(1.0)
        loss = variable * 2
    tape = hvd.DistributedGradientTape(tape, process_set=unknown)
    calls = [
        lambda: hvd.allreduce(1.0, process_set=unknown),
        lambda: hvd.allgather([1.0], process_set=unknown),
        lambda: hvd.broadcast(1.0, 0, process_set=unknown),
        lambda: hvd.alltoall([1.0], process_set=unknown),
        lambda: hvd.reducescatter([1.0], process_set=unknown),
        lambda: hvd.allgather_object(1, process_set=unknown),
        lambda: hvd.barrier(process_set=unknown),
        lambda: tape.gradient(loss, variable),
        lambda: hvd.size_op(process_set_id=77),
        lambda: hvd.process_set_included_op(process_set_id=77),
        lambda: hvd.add_process_set([0, SIZE]),
    ]
    assert "is not registered" in raised(calls[0])[1]
    return [raised(call)[0] for call in calls] + [unknown.size(), unknown.rank(), unknown.included(), repr(unknown)]


# ------------------------------------------------------------------------------------------------------------- names


@check
def modules() -> list[Any]:
    names = ["tensorflow.util", "tensorflow.mpi_ops", "common.util", "runner.common.util.env"]
    util, mpi_ops, common, env = (importlib.import_module(f"horovod.{name}") for name in names)
    return [
        hvd._executing_eagerly() and util._executing_eagerly() and hvd_keras._executing_eagerly(),
        not tf.function(lambda: tf.constant(hvd._executing_eagerly()))().numpy(),
        mpi_ops.allreduce is hvd.allreduce and mpi_ops.size() == SIZE,
        common.num_rank_is_power_2(4) and not common.num_rank_is_power_2(6),
        common.split_list([1, 2, 3, 4, 5], 2) == [[1, 2, 3], [4, 5]] and not common.gloo_built(),
        env.get_env_rank_and_size() == (RANK, SIZE),
        raised(importlib.import_module, "horovod.tensorflow.data.compute_service"),
        raised(getattr, common, "check_extension")[0],
    ]


@check
def synchronized_normalization() -> list[Any]:
    layer = hvd.SyncBatchNormalization(axis=-1, fused=False, momentum=0.5)
    x = numbers(RANK)
    everything = np.concatenate([numbers(rank) for rank in RANKS])
    y = layer(tf.constant(x), training=True)
    expected = (x - everything.mean(0)) / np.sqrt(everything.var(0) + 1e-3)
    again = type(layer).from_config(layer.get_config())
    return [
        bool(np.allclose(y, expected, atol=1e-5)),
        isinstance(layer, hvd.SyncBatchNormalization) and isinstance(layer, keras.layers.BatchNormalization),
        again.momentum,
        raised(hvd.SyncBatchNormalization, fused=True)[0],
    ]


@check
def local_and_global() -> list[Any]:
    first, second = (keras.layers.Dense(1, use_bias=False) for _ in range(2))
    x = tf.ones([1, 1])
    with tf.GradientTape() as tape:
        first.build([None, 1])
        second.build([None, 1])
        for layer in (first, second):
            layer.kernel.assign([[1.0]])
        loss = tf.reduce_sum(second(first(x))) * (RANK + 1.0)
    tape = hvd.PartialDistributedGradientTape(tape, local_layers=[first], scale_local_gradients=False)
    before = raised(tape.get_local_and_global_gradients)[0]
    grads = tape.gradient(loss, [first.kernel, second.kernel])
    local, others = tape.get_local_and_global_gradients(grads)
    wrong = raised(hvd.PartialDistributedGradientTape, tape, local_layers=[first.kernel])[0]
    sums = [[float(tf.reduce_sum(g)) for g in group] for group in (local, others)]
    return [before, sums == [[RANK + 1.0], [np.float32((SIZE + 1) / 2)]], wrong]


# -------------------------------------------------------------------------------------------- graphs of TensorFlow 1


def in_session(build: Any) -> Any:
    """What a session makes of the tensors that `build` returns."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        fetched = build()
        session.run(tf.compat.v1.global_variables_initializer())
        return session.run(fetched)


V1 = tf.compat.v1
ROOT = SIZE - 1
BEGUN = [float(ROOT), 1.0]
MEAN = (SIZE + 1) / 2


def variable(name: str = "v", **choices: Any) -> Any:
    return V1.get_variable(name, initializer=[float(RANK), 1.0], **choices)


def gradient_in_graph(function: Any) -> Any:
    x = tf.ones([SIZE]) * (RANK + 1.0)
    return tf.gradients(function(x), x, tf.fill([SIZE], RANK + 1.0))[0]


def train_first() -> list[float]:
    """As scripts do: the train step is added first, and then what runs before it."""
    with tf.Graph().as_default(), V1.Session() as session:
        weight = variable()
        place = V1.placeholder(tf.float32, [])
        mean = hvd.allreduce(place * (RANK + 1.0), op=hvd.Average)
        step = weight.assign_sub([mean, mean])
        begin = hvd.broadcast_global_variables(ROOT)
        session.run(V1.global_variables_initializer())
        session.run(begin)  # needs no placeholder
        return session.run(step, {place: 1.0}).tolist()


def with_hook() -> list[float]:
    with tf.Graph().as_default():
        value = variable().read_value()
        with V1.train.MonitoredTrainingSession(hooks=[hvd.BroadcastGlobalVariablesHook(ROOT)]) as session:
            return session.run(value).tolist()


def by_tape() -> Any:
    weight = variable()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * (RANK + 1.0))
    return hvd.DistributedGradientTape(tape).gradient(loss, [weight])[0]


def by_optimizer(use_resource: bool) -> list[float]:
    with tf.Graph().as_default(), V1.Session() as session:
        weight = V1.get_variable("w", initializer=[1.0, 1.0], use_resource=use_resource)
        optimizer = hvd.DistributedOptimizer(V1.train.GradientDescentOptimizer(1.0))
        step = optimizer.minimize(tf.reduce_sum(weight) * (RANK + 1.0))
        session.run(V1.global_variables_initializer())
        session.run(step)
        return session.run(weight).tolist()


@check
def graphs() -> dict[str, bool]:
    found = {
        "in place": in_session(lambda: hvd.broadcast_([variable()], ROOT)[0]).tolist() == BEGUN,
        "not a resource": in_session(lambda: hvd.broadcast_([variable(use_resource=False)], ROOT)[0]).tolist() == BEGUN,
        "several": in_session(lambda: hvd.broadcast_([variable(), variable("w")], ROOT))[1].tolist() == BEGUN,
        "in order": train_first() == [ROOT - MEAN, 1.0 - MEAN],
        "hook": with_hook() == BEGUN,
        "sum": in_session(lambda: hvd.allreduce(tf.ones([2]), op=hvd.Sum)).tolist() == [SIZE, SIZE],
        "broadcast": in_session(lambda: gradient_in_graph(lambda x: hvd.broadcast(x, 0))).tolist()
        == [MEAN * (RANK == 0)] * SIZE,
        "average": in_session(lambda: gradient_in_graph(hvd.allreduce)).tolist() == [MEAN] * SIZE,
        "scattered": in_session(lambda: tf.shape(hvd.reducescatter(tf.ones([SIZE])))).tolist() == [1],
        "tape": np.allclose(in_session(by_tape), MEAN),
        "optimizer": all(np.allclose(by_optimizer(resource), 1.0 - MEAN) for resource in (True, False)),
        "in a function": raised(tf.function(hvd.broadcast_object), 1)[0] == "UnsupportedError",
    }
    with tf.Graph().as_default():
        found["object"] = hvd.broadcast_object({"a": RANK}, ROOT) == {"a": ROOT}
        found["objects"] = hvd.allgather_object("x" * (RANK + 1)) == ["x" * (rank + 1) for rank in RANKS]
    return {name: bool(right) for name, right in found.items()}


@check
def refused_in_graphs() -> list[Any]:
    with tf.Graph().as_default():
        return [
            raised(hvd.join),
            raised(hvd_keras.callbacks.BroadcastGlobalVariablesCallback, 0),
            raised(hvd_keras.callbacks.MetricAverageCallback),
            raised(hvd.elastic.TensorFlowState, []),
            raised(tnt.broadcast_variables, [variable("never")]),
        ]


run(FOLDER, *sys.argv[2:])
