"""The random states of legacy Keras, which hide in a private generator object of each layer that draws numbers."""

from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import layers_of
from tarantella.seeding import SPREAD


def seed_variables(model: Any) -> list[Any]:
    """The states of the layers' random generators."""
    found = [getattr(getattr(layer, "_random_generator", None), "_generator", None) for layer in layers_of(model)]
    return list({id(generator.state): generator.state for generator in found if generator is not None}.values())


def layers_without_seed_state(model: Any) -> list[str]:
    """The names of the layers whose random numbers come from a state that nobody can read."""
    return [layer.name for layer in _without_generator(model)]


def _without_generator(model: Any) -> list[Any]:
    def kind(layer: Any) -> str:
        return getattr(getattr(layer, "_random_generator", None), "_rng_type", "")

    return [layer for layer in layers_of(model) if kind(layer) == "legacy_stateful"]


def common_seed_variables(make: bool = False) -> list[Any]:
    """No variable: the state of an operation without a generator cannot be read."""
    return []


def add_seed_generators(model: Any) -> None:
    """Gives generators to the layers that draw random numbers without one, the default of this Keras."""
    for layer in _without_generator(model):
        random = layer._random_generator
        random._rng_type, random._built = random.RNG_STATEFUL, False
        random._maybe_init()


def seed_of_shard(state: tf.Tensor, shard: int) -> tf.Tensor:
    """The state for a shard, derived from a generator's state. The first shard gets that state itself."""
    return tf.concat([state[:-1], tf.bitwise.bitwise_xor(state[-1:], shard * SPREAD)], 0)  # counters, and a key


def seed_of_next_step(state: tf.Tensor) -> tf.Tensor:
    """The state for the next step, derived from that at the begin of a step and far from all that the step may draw."""
    return tf.concat([state[:1] + (1 << 32), state[1:]], 0)


def step_counters(model: Any) -> list[Any]:
    """The count of the model's steps that `TensorBoard` shows."""
    return [model._train_counter]
