"""`tnt.all_to_all` and `tnt.reduce_scatter`, and their gradients, and calls that differ between ranks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()


def splits_of(rank: int) -> list[int]:
    """How many rows this rank sends to each: some get none."""
    return [(rank + to) % 3 for to in range(SIZE)]


def rows_of(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).normal(size=(sum(splits_of(rank)), 2))


def part(rank: int, to: int) -> np.ndarray:
    begin = sum(splits_of(rank)[:to])
    return rows_of(rank)[begin : begin + splits_of(rank)[to]]


@check
def exchanges() -> list[bool]:
    expected = np.concatenate([part(rank, RANK) for rank in range(SIZE)])
    numbers = [splits_of(rank)[RANK] for rank in range(SIZE)]
    found = []
    for dtype in ("float32", "bfloat16", "int16", "bool"):
        x = tf.cast(rows_of(RANK) * 3, dtype)
        for exchange in (tnt.all_to_all, tf.function(tnt.all_to_all)):
            rows, received = exchange(x, splits_of(RANK))
            found.append(bool(tf.reduce_all(rows == tf.cast(expected * 3, dtype))) and received.numpy().tolist() == numbers)
    rows, _ = tnt.all_to_all(np.arange(2 * SIZE) + 100 * RANK)
    found.append(rows.tolist() == [100 * rank + 2 * RANK + i for rank in range(SIZE) for i in range(2)])
    return found


@check
def scatters() -> list[bool]:
    rows = 2 * SIZE + 1  # rank 0 gets one more
    of_all = np.stack([np.random.default_rng(9 + rank).normal(size=(rows, 3)) for rank in range(SIZE)])
    mine = slice(0, 3) if RANK == 0 else slice(2 * RANK + 1, 2 * RANK + 3)
    expected = {"sum": of_all.sum(0), "avg": of_all.mean(0), "min": of_all.min(0), "max": of_all.max(0), "prod": of_all.prod(0)}
    found = []
    for op, result in expected.items():
        for scatter in (tnt.reduce_scatter, tf.function(tnt.reduce_scatter)):
            rows_here = scatter(tf.constant(of_all[RANK]), op).numpy()
            found.append(bool(np.allclose(rows_here, result[mine], rtol=1e-12)))
    found.append(tnt.reduce_scatter([1, 2, 3, 4]).tolist() == [SIZE * n for n in np.array_split([1, 2, 3, 4], SIZE)[RANK]])
    return found


@check
def gradients() -> list[bool]:
    """Of the sum over ranks of the sums of factors times what each has received."""
    x = tf.constant(rows_of(RANK))
    with tf.GradientTape() as tape:
        tape.watch(x)
        rows, _ = tnt.all_to_all(x, splits_of(RANK))
        loss = tf.reduce_sum(rows) * (RANK + 1.0)
    exchanged = tape.gradient(loss, x).numpy()
    expected = np.concatenate([np.full((n, 2), to + 1.0) for to, n in enumerate(splits_of(RANK))])
    x = tf.ones([SIZE + 1, 2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tnt.reduce_scatter(x, "avg")) * (RANK + 1.0)
    scattered = tape.gradient(loss, x).numpy()
    of_rows = np.repeat(np.arange(SIZE) + 1.0, [2] + [1] * (SIZE - 1)) / SIZE
    return [np.array_equal(exchanged, expected), bool(np.allclose(scattered, of_rows[:, None]))]


@check
def refused() -> list[Any]:
    """All ranks learn of it, and go on afterwards."""
    found = [
        raised(tnt.all_to_all, tf.zeros([2]), [5] + [0] * (SIZE - 1) if RANK == 1 else [2] + [0] * (SIZE - 1)),
        raised(tnt.all_gather, tf.zeros([2, 2 + RANK % 2])),
        raised(tnt.reduce_scatter, tf.zeros([3 + RANK % 2])),
        raised(tnt.all_to_all, tf.constant(1)),
    ]
    return [*found, tnt.all_gather(tf.constant([RANK])).numpy().tolist() == list(range(SIZE))]


run(sys.argv[1], *sys.argv[2:])
