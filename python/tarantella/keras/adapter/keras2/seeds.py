"""The random states of legacy Keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import layers_of
from tarantella.keras.adapter.common.seeds import SPREAD


def seed_variables(model: Any) -> list[Any]:
    """The states of the random generators of layers."""
    found = [getattr(getattr(layer, "_random_generator", None), "_generator", None) for layer in layers_of(model)]
    return list({id(generator.state): generator.state for generator in found if generator is not None}.values())


def forgetful_layers(model: Any) -> list[str]:
    """The names of layers whose random numbers come from states that TensorFlow does not give away."""
    return [layer.name for layer in _without_generator(model)]


def _without_generator(model: Any) -> list[Any]:
    def kind(layer: Any) -> str:
        return getattr(getattr(layer, "_random_generator", None), "_rng_type", "")

    return [layer for layer in layers_of(model) if kind(layer) == "legacy_stateful"]


def common_seed_variables(make: bool = False) -> list[Any]:
    """None: what has no generator of its own has a state that cannot be had."""
    return []


def use_generators(model: Any) -> None:
    """Gives layers that draw random numbers generators of their own, which they do not have unless it is asked for."""
    for layer in _without_generator(model):
        random = layer._random_generator
        random._rng_type, random._built = random.RNG_STATEFUL, False
        random._maybe_init()


def seed_of_shard(state: tf.Tensor, shard: int) -> tf.Tensor:
    """Of a generator's state: another stream of numbers for each shard, the state's own for the first."""
    return tf.concat([state[:-1], tf.bitwise.bitwise_xor(state[-1:], shard * SPREAD)], 0)  # counters, and a key


def seed_of_next_step(state: tf.Tensor) -> tf.Tensor:
    """Of the state that a step began with: far from what the step may have drawn, however much that was."""
    return tf.concat([state[:1] + (1 << 32), state[1:]], 0)


def step_counters(model: Any) -> list[Any]:
    """How many steps the model has made, as `TensorBoard` sees it."""
    return [model._train_counter]
