"""Training loops that a user writes, compared with what one device computes of all ranks' samples together."""

from __future__ import annotations

import copy
import gc
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import loop_errors  # noqa: F401  its checks run, too
import tarantella as tnt
from checks import check, raised, run
from loop_runs import (
    RANK,
    SIZE,
    away,
    distributed,
    flat,
    loss_of,
    make,
    serial,
    with_apply,
    with_apply_gradients,
    with_tape,
    x,
    y,
)
from tarantella.keras.loops import reducers
from tarantella.keras.loops.optimizers import is_distributed


@check
def equivalence() -> dict[str, list[float]]:
    adam = keras.optimizers.Adam
    truth = serial(adam(0.01))
    return {
        f"{step.__name__}, {'graph' if graph else 'eager'}": away(distributed(step, adam(0.01), graph), truth)
        for step in (with_tape, with_apply, with_apply_gradients)
        for graph in (False, True)
    }


@check
def optimizers() -> dict[str, list[float]]:
    """What an optimizer does with gradients before it uses them, it does with those of all ranks."""
    kinds: dict[str, Callable[[], Any]] = {
        "clipnorm": lambda: keras.optimizers.SGD(0.1, clipnorm=0.05),
        "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.01),
        "global_clipnorm": lambda: keras.optimizers.SGD(0.1, global_clipnorm=0.05),
        "accumulation": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
        "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), 64.0),
        "both": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), 64.0),
    }
    found = {}
    for name, kind in kinds.items():
        truth = serial(kind())
        for graph in (False, True):
            found[f"{name}, {'graph' if graph else 'eager'}"] = away(distributed(with_apply, kind(), graph), truth)
    return found


@check
def embedding() -> dict[str, list[float]]:
    ids = np.random.default_rng(1).permutation(4000)[:160].reshape(40, 4).astype(np.int32)
    adam = keras.optimizers.Adam
    truth = serial(adam(0.01), inputs=ids, rows=4000)
    return {
        f"{step.__name__}, {'graph' if graph else 'eager'}": away(
            distributed(step, adam(0.01), graph, inputs=ids, rows=4000), truth
        )
        for step in (with_tape, with_apply)
        for graph in (False, True)
    }


@check
def weights() -> list[Any]:
    """The mean over ranks; the sum; a factor of one's own; ranks that do not count."""
    variable = tf.Variable([1.0, 2.0])

    def gradient(**how: Any) -> list[float]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * (RANK + 1.0))
        return tnt.DistributedGradientTape(tape).gradient(loss, variable, **how).numpy().tolist()

    return [
        gradient(),
        gradient(weight=1),
        gradient(weight=tf.constant(RANK * 0.5)),
        gradient(samples=RANK),
        gradient(samples=0),
    ]


@check
def structures() -> list[Any]:
    """What is asked for is what comes: nested, unconnected, of several types."""
    a, b = tf.Variable([1.0]), keras.Variable([2.0, 3.0], dtype="float64")
    table, unused = tf.Variable(np.ones((4096, 8), np.float32)), tf.Variable(5.0)
    sources = {"table": table, "others": (b, [a, unused])}

    @tf.function
    def gradients() -> Any:
        with tf.GradientTape() as tape:
            loss = a[0] + tf.reduce_sum(tf.gather(table, [RANK, RANK, 7])) + tf.cast(tf.reduce_sum(b.value), tf.float32)
        return tnt.DistributedGradientTape(tape).gradient(loss, sources, weight=1)

    found = gradients()
    rows = found["table"]
    b_, (a_, unused_) = found["others"]
    return [
        [rows.indices.numpy().tolist(), rows.values.numpy()[:, 0].tolist(), list(rows.shape)],
        [b_.numpy().tolist(), b_.dtype.name, a_.numpy().tolist(), unused_ is None],
    ]


@check
def in_a_loop_of_a_graph() -> list[float]:
    """The same reducers again and again, with nothing that keeps the rounds apart."""
    model = make()

    @tf.function
    def summed(dataset: Any) -> Any:
        total = tuple(tf.zeros(v.shape) for v in model.trainable_variables)
        for a, b in dataset:
            with tf.GradientTape() as tape:
                loss = loss_of(model, a, b)
            tape = tnt.DistributedGradientTape(tape)
            gradients = tape.gradient(loss, model.trainable_variables, samples=tf.shape(a)[0])
            total = tuple(t + g for t, g in zip(total, gradients, strict=True))
        return total

    part = slice(RANK, 39, SIZE)
    dataset = tf.data.Dataset.from_tensor_slices((x[part], y[part])).batch(1).repeat(20)
    found = np.concatenate([np.ravel(t) for t in summed(dataset)])
    with tf.GradientTape() as tape:
        loss = loss_of(model, x[:39], y[:39])
    truth = np.concatenate([np.ravel(g) for g in tape.gradient(loss, model.trainable_variables)]) * 20 * 39 / SIZE
    return away(found / np.abs(truth).max(), truth / np.abs(truth).max())


@check
def twice_in_a_step() -> list[float]:
    """Two losses of the same variables."""
    variable = tf.Variable([3.0])

    @tf.function
    def gradients() -> Any:
        with tf.GradientTape(persistent=True) as tape:
            first, second = variable * (RANK + 1.0), variable * variable
        tape = tnt.DistributedGradientTape(tape)
        return tape.gradient(first, [variable], weight=1)[0], tape.gradient(second, [variable], weight=1)[0]

    return [float(g[0]) for g in gradients()]


@check
def no_sync() -> list[Any]:
    """Four micro-batches, one reduction; in a graph, in a branch of one, and eagerly."""

    def trained(graph: bool) -> list[float]:
        model, optimizer = make(), tnt.optimizers.Optimizer(keras.optimizers.SGD(0.1))

        def step(a: Any, b: Any) -> None:
            sums = [tf.zeros(v.shape) for v in model.trainable_variables]
            for part in range(4):
                with tnt.no_sync(), tnt.DistributedGradientTape(tf.GradientTape()) as tape:
                    loss = loss_of(model, a[part::4], b[part::4])
                with tnt.no_sync():
                    gradients = tape.gradient(loss, model.trainable_variables)
                sums = [s + g / 4 for s, g in zip(sums, gradients, strict=True)]
            optimizer.apply(sums, model.trainable_variables)

        before = reduced()
        part = slice(8 * RANK, 8 * RANK + 8)
        (tf.function(step) if graph else step)(tf.constant(x[part]), tf.constant(y[part]))
        steps = reduced() - before
        return [*away(flat(model), serial(keras.optimizers.SGD(0.1), [8 * SIZE])), steps]

    return [trained(False), trained(True)]


def reduced() -> float:
    """Steps of all reducers of gradients in custom loops, as long as their variables live."""
    gc.collect()
    return sum(reducer.stats()["steps"] for reducer in reducers.reducers() if reducer.name == "gradients")


@check
def accumulation_reduces_once() -> list[float]:
    model = make()
    optimizer = tnt.optimizers.Optimizer(keras.optimizers.SGD(0.1, gradient_accumulation_steps=4))
    step = tf.function(
        lambda: optimizer.apply([tf.ones(v.shape) for v in model.trainable_variables], model.trainable_variables)
    )
    steps = []
    for _ in range(9):
        before = reduced()
        step()
        steps.append(reduced() - before)
    return steps


@check
def is_the_optimizer() -> list[Any]:
    plain = keras.optimizers.Adam(0.01, name="adam")
    config = keras.optimizers.serialize(plain)
    ours = tnt.optimizers.Optimizer(plain)
    ours.learning_rate = 0.5
    found = [
        type(ours) is keras.optimizers.Adam,
        ours is plain,
        float(ours.learning_rate),
        tnt.optimizers.Optimizer(ours) is ours,
    ]
    ours.learning_rate = 0.01
    loaded = keras.optimizers.deserialize(keras.optimizers.serialize(ours))
    copied = copy.deepcopy(ours)
    return [
        *found,
        keras.optimizers.serialize(ours) == config,
        [is_distributed(one) for one in (ours, loaded, copied, keras.optimizers.LossScaleOptimizer(ours))],
    ]


@check
def reducers_end_with_their_variables() -> list[bool]:
    variable = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable)
    tnt.DistributedGradientTape(tape).gradient(loss, [variable])
    key = ("gradients", (id(variable),), None, ())
    before = key in reducers.reducers()._reducers
    del variable, tape, loss
    gc.collect()
    return [before, key in reducers.reducers()._reducers]


@check
def broadcast_variables() -> list[Any]:
    """Of any kind, eagerly; of numbers in a graph."""

    def variables() -> list[Any]:
        return [
            tf.Variable([RANK + 1.0, 2.0]),
            keras.Variable([RANK, 7], dtype="int32"),
            tf.Variable([RANK == 1]),
            tf.Variable(np.full((2, 2), RANK, np.complex64)),
        ]

    def values(found: list[Any]) -> list[Any]:
        return [np.asarray(v).real.astype(float).ravel().tolist() for v in found]

    eager, graph = variables(), variables()
    tnt.broadcast_variables({"a": eager[0], "others": eager[1:]}, root=1)
    tf.function(lambda: tnt.broadcast_variables(graph, root=1))()
    return [values(eager), values(graph)]


# ------------------------------------------------------------------------------------------------------ all_reduce


@check
def all_reduce_of_tensors() -> list[Any]:
    v = tf.constant([1.0, 2.0]) * (RANK + 1)

    def several(v: Any) -> Any:
        return (
            tnt.all_reduce(v),
            tnt.all_reduce(v, "max"),
            tnt.all_reduce(tf.cast(v, tf.bfloat16), "avg"),
            tnt.all_reduce(tf.cast(v, tf.int32), "prod"),
            tnt.all_reduce(v[:, None, None]),
            tnt.all_reduce(v[:0]),
        )

    ways = [several(v), tf.function(several)(v), tf.function(several, input_signature=[tf.TensorSpec([None])])(v)]
    return [[[np.asarray(t, np.float64).tolist(), t.dtype.name] for t in way] for way in ways]


@check
def all_reduce_of_variables() -> list[Any]:
    found = [tnt.all_reduce(tf.Variable(RANK + 1.0)), tnt.all_reduce(keras.Variable([RANK + 1.0]))]
    return [[tf.is_tensor(f), np.ravel(f).tolist()] for f in found]


@check
def gradients_of_all_reduce() -> list[Any]:
    """Of sum over ranks s of (s+1) * op over r of v_r^2, for one rank's v."""

    def gradient(op: str) -> Any:
        v = tf.constant([1.0, 2.0]) * (RANK + 1)
        with tf.GradientTape() as tape:
            tape.watch(v)
            loss = tf.reduce_sum(tnt.all_reduce(v * v, op)) * (RANK + 1.0)
        return tape.gradient(loss, v)

    return [
        [way(op).numpy().tolist() for op in ("sum", "avg") for way in (gradient, tf.function(gradient))],
        raised(gradient, "max"),
    ]


run(sys.argv[1])
