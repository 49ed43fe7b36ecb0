"""Ways to draw random numbers, by TensorFlow and by Keras: each gives `N` of them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

keras = tf.keras
layers = keras.layers
LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"
N = 400  # numbers of each draw: two independent ones have a correlation of 0.05 (one standard deviation)
COUNTER = tf.Variable(0)

Sources = dict[str, Callable[[], Any]]


def of_tensorflow() -> Sources:
    """With hidden states."""
    random, length = tf.random, [N]
    return {
        "normal": lambda: random.normal(length),
        "normal, seeded": lambda: random.normal(length, seed=5),
        "uniform": lambda: random.uniform(length),
        "uniform int, seeded": lambda: random.uniform(length, 0, 1000, tf.int32, seed=6),
        "truncated normal": lambda: random.truncated_normal(length),
        "gamma, seeded": lambda: random.gamma(length, 2.0, seed=7),
        "poisson": lambda: random.poisson(length, 50.0),
        "categorical, seeded": lambda: random.categorical(tf.zeros([1, 100]), N, seed=8)[0],
        "shuffle, seeded": lambda: random.shuffle(tf.range(N), seed=9),
        "candidates, seeded": lambda: random.log_uniform_candidate_sampler([[1]], 1, N, False, 10**6, seed=9)[0],
        "raw, seeded": lambda: tf.raw_ops.RandomStandardNormal(shape=length, dtype=tf.float32, seed=1, seed2=2),
        "nn.dropout": lambda: tf.nn.dropout(tf.ones(length), 0.5),
        "in a branch, seeded": lambda: tf.cond(
            COUNTER.read_value() >= 0, lambda: random.normal(length, seed=12), lambda: tf.zeros(length)
        ),
    }


def stateless() -> Sources:
    random, length, seed = tf.random, [N], [1, 2]
    fold_in = random.experimental.stateless_fold_in
    return {
        "stateless normal": lambda: random.stateless_normal(length, seed),
        "stateless normal, philox": lambda: random.stateless_normal(length, seed, alg="philox"),
        "stateless normal, int64": lambda: random.stateless_normal(length, tf.constant(seed, tf.int64)),
        "stateless uniform int": lambda: random.stateless_uniform(length, seed, 0, 1000, tf.int32),
        "stateless truncated normal": lambda: random.stateless_truncated_normal(length, seed),
        "stateless gamma": lambda: random.stateless_gamma(length, seed, 2.0),
        "stateless poisson": lambda: random.stateless_poisson(length, seed, 50.0, tf.int32),
        "stateless binomial": lambda: random.stateless_binomial(length, seed, 1000.0, 0.5),
        "stateless categorical": lambda: random.stateless_categorical(tf.zeros([1, 100]), N, seed)[0],
        "stateless shuffle": lambda: random.experimental.stateless_shuffle(tf.range(N), seed),
        "stateless dropout": lambda: tf.nn.experimental.stateless_dropout(tf.ones(length), 0.5, seed),
        "stateless, folded": lambda: random.stateless_normal(length, fold_in(seed, 7)),
        "stateless, raw": lambda: tf.raw_ops.StatelessRandomNormal(shape=length, seed=seed),
        "stateless, in a map": lambda: tf.map_fn(
            lambda i: random.stateless_normal([], tf.stack([3, i])), tf.range(N), fn_output_signature=tf.float32
        ),
        "stateless, vectorized": lambda: tf.vectorized_map(
            lambda i: random.stateless_normal([], tf.stack([3, i])), tf.range(N)
        ),
        "stateless, in a function": lambda: traced_before(tf.constant(seed)),
    }


@tf.function
def traced_before(seed: Any) -> Any:
    return tf.random.stateless_normal([N], seed)


traced_before(tf.constant([1, 2]))


def generators() -> Sources:
    made = iter([tf.random.Generator.from_seed(seed) for seed in range(1, 6)])
    one, two, three, four, five = made
    return {
        "generator normal": lambda: one.normal([N]),
        "generator uniform int": lambda: two.uniform([N], 0, 1000, tf.int32),
        "generator binomial": lambda: three.binomial([N], 1000.0, 0.5),
        "generator seeds": lambda: four.make_seeds(N)[0] // 2**33,
        "generator truncated normal": lambda: five.truncated_normal([N]),
    }


def of_keras() -> Sources:
    """Layers, and what layers draw with."""
    kinds: list[Any] = [layers.Dropout(0.5, seed=1), layers.GaussianNoise(1.0, seed=2), layers.AlphaDropout(0.5, seed=3)]
    found: Sources = {
        f"layer {type(layer).__name__}": lambda layer=layer: layer(tf.ones([1, N]), training=True)[0] for layer in kinds
    }
    if LEGACY:
        for kind in ("stateful", "stateless", "legacy_stateful"):
            generator = importlib.import_module("tf_keras.src.backend").RandomGenerator(seed=7, rng_type=kind)
            found[f"backend {kind}"] = lambda generator=generator: generator.random_normal([N])
            found[f"backend {kind} dropout"] = lambda generator=generator: generator.dropout(tf.ones([N]), 0.5)
        return found
    random, generator = keras.random, keras.random.SeedGenerator(11)
    return {
        **found,
        "keras normal": lambda: random.normal([N], seed=1),
        "keras normal, generator": lambda: random.normal([N], seed=generator),
        "keras normal, common generator": lambda: random.normal([N]),
        "keras uniform": lambda: random.uniform([N], seed=2),
        "keras randint": lambda: random.randint([N], 0, 1000, seed=2),
        "keras truncated normal": lambda: random.truncated_normal([N], seed=2),
        "keras dropout": lambda: random.dropout(tf.ones([N]), 0.5, seed=2),
        "keras gamma": lambda: random.gamma([N], 2.0, seed=2),
        "keras beta": lambda: random.beta([N], 2.0, 3.0, seed=2),
        "keras binomial": lambda: random.binomial([N], 1000.0, 0.5, seed=2),
        "keras categorical": lambda: random.categorical(tf.zeros([1, 100]), N, seed=2)[0],
        "keras shuffle": lambda: random.shuffle(tf.range(N), seed=2),
    }


def all_sources() -> Sources:
    keras.utils.set_random_seed(3)
    return {**of_tensorflow(), **stateless(), **generators(), **of_keras()}


def a_few() -> Sources:
    """One way to draw of each kind."""
    names = ("normal", "stateless normal", "stateless binomial", "stateless, in a function", "generator normal")
    names += ("generator binomial", "layer GaussianNoise", "keras normal, generator", "backend stateful")
    return {name: source for name, source in all_sources().items() if name in names}
