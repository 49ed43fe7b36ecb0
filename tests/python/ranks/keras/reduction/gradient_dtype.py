"""Gradients that are sent in 16 bits, and what a bucket hook sees of them: gradient_dtype.py FOLDER"""

from __future__ import annotations

import collections
import copy
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tarantella as tnt
from checks import check, raised, run

RANK, SIZE = tnt.get_rank(), tnt.get_size()
x = np.random.default_rng(0).normal(size=(120, 16)).astype(np.float32)
y = np.tanh(x[:, :4]).sum(1, keepdims=True)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(30)


def network() -> Any:
    keras.utils.set_random_seed(5)
    return keras.Sequential([keras.Input((16,)), layers.Dense(64, activation="tanh"), layers.Dense(1)])


def trained(epochs: int = 1, steps: int | None = None, optimizer: Any = None, eager: bool = False, **how: Any) -> Any:
    keras.backend.clear_session()
    model = tnt.Model(network(), **how)
    model.compile(optimizer or keras.optimizers.SGD(1.0), "mse", metrics=["mae"], run_eagerly=eager)
    model.history = model.fit(dataset, epochs=epochs, steps_per_epoch=steps, verbose=0).history
    return model


def gradient_of_first_step(contributions: list[Any] | None = None, **how: Any) -> Any:
    """What SGD with a rate of 1 takes off the weights, and the contributions of this rank as its hook saw them."""

    def keep(bucket: tnt.PackedBucket) -> None:
        if contributions is not None:
            contributions.append(bucket.data.astype(np.float64))

    before = [np.array(w, np.float64) for w in network().get_weights()]
    model = trained(steps=1, bucket_hook=keep, **how)
    after = [np.array(w, np.float64) for w in model.get_weights()]
    # as the bucket has them: the last variable first
    return np.concatenate([np.ravel(b - a) for b, a in reversed(list(zip(before, after, strict=True)))])


# unit roundoffs; the weights themselves, of at most 1, are float32
UNITS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


@check
def errors_are_bounded() -> dict[str, Any]:
    contributions: list[Any] = []
    gradient_of_first_step(contributions)
    (own,) = contributions
    exact = tnt.all_reduce(own)
    magnitudes = tnt.all_reduce(np.abs(own))
    found = {}
    for dtype, unit in UNITS.items():
        errors = np.abs(gradient_of_first_step(gradient_dtype=dtype) - exact)
        bound = 1.01 * unit * (magnitudes + np.abs(exact)) + 2.0**-22
        found[dtype] = [float((errors / bound).max()), float(errors.max())]
    return found


@check
def half_the_bytes() -> list[Any]:
    return [trained(gradient_dtype=dtype).stats() for dtype in (None, "bfloat16", "float16")]


@check
def trains_as_plain_keras_does() -> dict[str, Any]:
    optimizer = keras.optimizers.Adam
    plain = tnt.Model(network(), tnt.ParallelStrategy.NONE)
    plain.compile(optimizer(0.01), "mse", metrics=["mae"])
    history = plain.fit(dataset, epochs=10, verbose=0).history
    found: dict[str, Any] = {"plain": history}
    for dtype in ("bfloat16", "float16"):
        found[dtype] = trained(10, optimizer=optimizer(0.01), gradient_dtype=dtype).history
    return found


@check
def only_gradients_are_rounded() -> list[Any]:
    """The number of samples, the sum of their losses: a thousand of the one and a third of the other need more than 8 bits."""
    found = []
    for distribute in (True, False):
        model = tnt.Model(network(), gradient_dtype="bfloat16")
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["mae"])
        whole = tf.data.Dataset.from_tensor_slices((x, y)).batch(120)
        history = model.fit(whole, verbose=0, tnt_distribute_dataset=distribute).history
        found.append([history[key][0] for key in ("loss", "mae")])
        found.append([r.name for r in model._tnt.hooks.reducers])
    plain = network()
    loss = np.square(plain(x).numpy() - y).mean()
    return [*found, [float(loss), float(np.abs(plain(x).numpy() - y).mean())]]


@check
def without_a_word_nothing_is_rounded() -> list[float]:
    return [trained().stats()["bytes"], trained(gradient_dtype="float16").stats()["bytes"]]


@check
def nonsense_is_refused() -> list[Any]:
    return [
        raised(tnt.Model, network(), gradient_dtype="float8"),
        raised(tnt.Model, network(), gradient_dtype=16),
        raised(tnt.Model, network(), bucket_hook="print"),
    ]


@check
def ranks_that_differ_are_named() -> list[str]:
    return raised(trained, gradient_dtype="bfloat16" if RANK == 1 else None)


@check
def a_hook_sees_every_bucket() -> list[Any]:
    seen: list[Any] = []

    def note(bucket: tnt.PackedBucket) -> None:
        seen.append([bucket.index, str(bucket.data.dtype), bucket.data.shape, list(bucket.tensors), list(bucket.names)])

    norms: dict[int, list[float]] = collections.defaultdict(list)

    def note_norm(bucket: tnt.PackedBucket) -> None:
        norms[bucket.index].append(float(np.linalg.norm(bucket.data.astype(np.float32))))

    trained(gradient_dtype="bfloat16", bucket_hook=note)
    trained(bucket_hook=note_norm)
    return [seen, {index: len(values) for index, values in norms.items()}, min(norms[0]) > 0]


@check
def a_hook_may_change_what_is_sent() -> list[Any]:
    def silence(bucket: tnt.PackedBucket) -> None:
        bucket.data[:] = 0

    silenced = trained(bucket_hook=silence)
    alone = trained(bucket_hook=silence if RANK == 1 else None)
    start = network().get_weights()
    changed = [not np.array_equal(a, b) for a, b in zip(alone.get_weights(), start, strict=True)]
    return [all(np.array_equal(a, b) for a, b in zip(silenced.get_weights(), start, strict=True)), all(changed)]


@check
def a_hook_runs_in_eager_steps() -> list[int]:
    calls: list[int] = []
    trained(eager=True, bucket_hook=lambda bucket: calls.append(bucket.index))
    return calls


@check
def a_hook_may_compute_with_tensorflow() -> float:
    """On a thread of TensorFlow or of the library, in the middle of a step."""
    norms: list[float] = []
    trained(bucket_hook=lambda bucket: norms.append(float(tf.norm(tf.constant(bucket.data)))))
    return min(norms)


@check
def copies_have_them_too() -> list[Any]:
    calls: list[int] = []
    model = copy.deepcopy(tnt.Model(network(), gradient_dtype="bfloat16", bucket_hook=lambda b: calls.append(b.index)))
    model.compile("sgd", "mse")
    model.fit(dataset, verbose=0)
    return [model.stats()["bytes"], len(calls)]


run(sys.argv[1])
