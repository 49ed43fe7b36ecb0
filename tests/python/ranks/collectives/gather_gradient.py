"""`tnt.all_gather` of tensors, and its gradient."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()


def rows_of(rank: int) -> np.ndarray:
    """Another number of them on each rank; rank 1 has none."""
    count = 0 if rank == 1 else rank + 2
    return np.random.default_rng(rank).normal(size=(count, 3)).astype(np.float32)


ALL = np.concatenate([rows_of(rank) for rank in range(SIZE)])
MINE = slice(sum(len(rows_of(rank)) for rank in range(RANK)), sum(len(rows_of(rank)) for rank in range(RANK + 1)))


@check
def values() -> dict[str, bool]:
    found = {}
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"):
        expected = tf.cast(ALL * 3, dtype)
        own = expected[MINE]
        in_graph = tf.function(tnt.all_gather)
        for name, gather in (("eagerly", tnt.all_gather), ("in a graph", in_graph)):
            result = gather(own)
            same = bool(tf.reduce_all(result == expected)) and result.dtype == expected.dtype
            found[f"{dtype} {name}"] = same and result.shape == expected.shape
    return found


@check
def special_values() -> list[Any]:
    """They arrive as they are."""
    own = tf.constant([[np.nan, np.inf, 1e-42]], tf.float32)
    return np.asarray(tnt.all_gather(own)).tolist()[RANK][1:] == [np.inf, float(np.float32(1e-42))]


def loss_of(rows: Any, rank: int) -> Any:
    """Another one on each rank, which couples all rows."""
    return (rank + 1.0) * tf.reduce_sum(tf.sqrt(tf.matmul(rows, rows, transpose_b=True) ** 2 + 1.0))


def true_gradient(weights: list[float]) -> np.ndarray:
    """Of the weighted sum of all ranks' losses."""
    rows = tf.constant(ALL, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        loss = tf.add_n([w * loss_of(rows, rank) for rank, w in enumerate(weights)])
    return tape.gradient(loss, rows).numpy()


def error(gradient: Any, truth: np.ndarray) -> float:
    return float(np.abs(np.asarray(gradient, np.float64) - truth).max(initial=0.0))


@check
def gradients() -> list[float]:
    """Without weights, of tensors and variables: the part of the sum over ranks that is this rank's."""
    found = []
    for source in (tf.constant(rows_of(RANK)), tf.Variable(rows_of(RANK))):

        def gradient(source: Any = source) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(source)
                loss = loss_of(tnt.all_gather(source), RANK)
            return tape.gradient(loss, source)

        truth = true_gradient([1.0] * SIZE)[MINE]
        found += [error(gradient(), truth), error(tf.function(gradient)(), truth)]
    return found


@check
def in_a_loop_of_ones_own() -> float:
    """One weight of a model of all samples: the tape weighs by samples, and so do gathered rows."""
    factor, counts = tf.Variable([1.0, 2.0, 3.0]), [2, 1, 3][:SIZE]
    data = np.random.default_rng(9).normal(size=(sum(counts), 3)).astype(np.float32)
    begin = sum(counts[:RANK])
    mine = data[begin : begin + counts[RANK]]
    with tnt.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = loss_of(tnt.all_gather(mine * factor), 0)
    ours = tape.gradient(loss, factor, samples=counts[RANK])
    with tf.GradientTape() as serial:
        loss = loss_of(data * factor, 0)
    return error(ours, serial.gradient(loss, factor).numpy()) / float(loss)


@check
def refused() -> list[Any]:
    model = tnt.Model(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]), reproducible=4)

    def loss(wanted: Any, found: Any) -> Any:
        return tf.reduce_mean(tf.square(tnt.all_gather(wanted) - tnt.all_gather(found)))

    model.compile("sgd", loss, run_eagerly=True)
    in_shards = raised(model.fit, np.ones((4, 3)), np.ones((4, 2)), verbose=0) if SIZE != 3 else []
    return [raised(tnt.all_gather, tf.constant(1.0)), raised(tnt.all_gather, tf.constant(["text"])), in_shards]


@check
def arrays_are_stacked() -> list[int]:
    return list(tnt.all_gather(np.zeros((2, 3))).shape)


run(sys.argv[1], *sys.argv[2:])
