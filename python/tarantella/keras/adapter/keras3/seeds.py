"""The random states of Keras 3."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import layers_of
from tarantella.keras.adapter.common.seeds import SPREAD


def seed_variables(model: Any) -> list[Any]:
    """The states of the random generators of layers."""
    return list({id(g.state): g.state for layer in layers_of(model) for g in layer._seed_generators}.values())


def forgetful_layers(model: Any) -> list[str]:
    """None: all random states of this Keras are variables."""
    return []


def common_seed_variables(make: bool = False) -> list[Any]:
    """The state of the generator for whatever has none of its own; none if it is not in use yet, unless it shall be made."""
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    if make:
        return [seed_generator.global_seed_generator().state]
    generator = global_state.get_global_attribute("global_seed_generator")
    return [] if generator is None else [generator.state]


def use_generators(model: Any) -> None:
    """All layers that draw random numbers have generators."""


def seed_of_shard(state: tf.Tensor, shard: int) -> tf.Tensor:
    """Of a generator's state: another stream of numbers for each shard, the state's own for the first."""
    seed, counter = tf.unstack(tf.cast(state, tf.int64))
    return tf.cast(tf.stack([tf.bitwise.bitwise_xor(seed, shard * SPREAD % (1 << 32)), counter]), state.dtype)


def seed_of_next_step(state: tf.Tensor) -> tf.Tensor:
    """Of the state that a step began with: far from what the step may have drawn, however much that was."""
    seed, counter = tf.unstack(tf.cast(state, tf.int64))
    following = (counter * 1664525 + 1013904223) % (1 << 32)  # the linear congruential generator of Numerical Recipes
    return tf.cast(tf.stack([seed, following]), state.dtype)


def step_counters(model: Any) -> list[Any]:
    """None: this Keras counts steps in the optimizer alone."""
    return []
