"""The random states of Keras 3."""

from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import layers_of
from tarantella.seeding import SPREAD


def seed_variables(model: Any) -> list[Any]:
    """The states of the layers' random generators. Keras lists them among no public variables but those of all kinds."""
    return list({id(g.state): g.state for layer in layers_of(model) for g in layer._seed_generators}.values())


def layers_without_seed_state(model: Any) -> list[str]:
    """No layer: all random states of this Keras are variables."""
    return []


def common_seed_variables(make: bool = False) -> list[Any]:
    """The state of the generator for operations without one of their own; empty if it does not exist and shall not be made.

    Keras makes it at its first use and keeps it in a private table.
    """
    from keras.src.backend.common import global_state
    from keras.src.random import seed_generator

    if make:
        return [seed_generator.global_seed_generator().state]
    generator = global_state.get_global_attribute("global_seed_generator")
    return [] if generator is None else [generator.state]


def add_seed_generators(model: Any) -> None:
    """Does nothing: all layers that draw random numbers have generators."""


def seed_of_shard(state: tf.Tensor, shard: int) -> tf.Tensor:
    """The state for a shard, derived from a generator's state. The first shard gets that state itself."""
    seed, counter = tf.unstack(tf.cast(state, tf.int64))
    return tf.cast(tf.stack([tf.bitwise.bitwise_xor(seed, shard * SPREAD % (1 << 32)), counter]), state.dtype)


def seed_of_next_step(state: tf.Tensor) -> tf.Tensor:
    """The state for the next step, derived from that at the begin of a step and far from all that the step may draw."""
    seed, counter = tf.unstack(tf.cast(state, tf.int64))
    following = (counter * 1664525 + 1013904223) % (1 << 32)  # the linear congruential generator of Numerical Recipes
    return tf.cast(tf.stack([seed, following]), state.dtype)


def step_counters(model: Any) -> list[Any]:
    """No variable: this Keras counts steps in the optimizer alone."""
    return []
