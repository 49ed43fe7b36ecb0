"""The rank-level collectives on TensorFlow's tensors and Keras' variables."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()


def told(x: Any) -> list[Any]:
    """Of a tensor its kind, type, shape and values."""
    return [tf.is_tensor(x), x.dtype.name, x.shape.as_list(), np.asarray(x).astype(np.float64).tolist()]


def layer_with(value: float) -> Any:
    """A layer of Keras, whichever the script chooses, with one weight."""
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=tf.keras.initializers.Constant(value))
    layer.build((None, 1))
    return layer


@check
def sums() -> list[Any]:
    found = []
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.uint64, tf.bool):
        mine = tf.cast(tf.constant([[0, RANK + 1, 2]]), dtype)
        found.append(told(tnt.TensorAllreducer(mine).allreduce(mine)))
    return found


@check
def in_structures() -> list[Any]:
    variable, plain = layer_with(1.0 + RANK).weights[0], tf.Variable(RANK, dtype=tf.int64)
    given = {"keras": variable, "tf": [plain], "scalar": tf.constant(2.5), "array": np.ones(2), "empty": tf.zeros((0, 3))}
    found = tnt.TensorAllreducer(given).allreduce(given)
    return [told(found["keras"]), told(found["tf"][0]), told(found["scalar"]), found["array"].tolist(), told(found["empty"])]


@check
def broadcasts_and_gathers() -> list[Any]:
    mine = {"x": tf.fill((2, 2), float(RANK)), "flag": tf.constant(RANK == 1)}
    broadcaster = tnt.TensorBroadcaster(mine, root_rank=1)
    result = broadcaster.broadcast(mine) if RANK == 1 else broadcaster.broadcast()
    own = tf.fill((RANK + 1,), RANK)
    return [told(result["x"]), told(result["flag"]), told(tnt.TensorAllgatherer(own).allgather(own))]


@check
def what_is_refused() -> list[Any]:
    inside: list[Any] = []

    @tf.function
    def graph(x: tf.Tensor) -> tf.Tensor:
        inside.extend(raised(tnt.TensorAllreducer, x))
        return x

    graph(tf.constant(1.0))
    return [inside, raised(tnt.TensorAllreducer, tf.constant("text")), raised(tnt.all_reduce, tf.zeros(1), "sum", np.zeros(1))]


run(sys.argv[1])
