"""The states of Python's, NumPy's and TensorFlow's own random generators, as a checkpoint holds them."""

import hashlib
import random
from typing import Any

import numpy as np
import tensorflow as tf

from tarantella import collectives
from tarantella.keras.adapter.tensorflow import operation_seeds
from tarantella.seeding import global_seed


def states() -> dict[str, Any]:
    """The states now. TensorFlow's generator gives seeds to operations without one, after `tf.random.set_seed`."""
    generator = operation_seeds()
    return {
        "python": _generator_state(random),
        "numpy": np.random.get_state(legacy=False),
        "tensorflow": {"seed": global_seed(), "operations": None if generator is None else _generator_state(generator)},
    }


def _generator_state(generator: Any) -> list[Any]:
    version, numbers, gauss = generator.getstate()
    return [version, np.array(numbers, np.uint32), gauss]


def restore(stored: dict[str, Any], python: bool = True) -> None:
    """Gives the generators these states again. python: also those of Python and NumPy."""
    if python:
        random.setstate(_state(stored["python"]))
        np.random.set_state(stored["numpy"])
    seed, operations = stored["tensorflow"]["seed"], stored["tensorflow"]["operations"]
    if seed is None:
        return
    if global_seed() != seed:
        tf.random.set_seed(seed)
    generator = operation_seeds()
    if operations is not None and generator is not None:
        generator.setstate(_state(operations))


def try_out(stored: dict[str, Any]) -> None:
    """Raises what `restore` would raise for these states, and changes no generator that is in use."""
    random.Random().setstate(_state(stored["python"]))
    np.random.RandomState().set_state(stored["numpy"])
    operations = stored["tensorflow"]["operations"]
    if operations is not None:
        random.Random().setstate(_state(operations))


def _state(stored: list[Any]) -> tuple[Any, ...]:
    version, numbers, gauss = stored
    return version, tuple(numbers.tolist()), gauss


def alike_everywhere() -> bool:
    """Whether Python's and NumPy's generators of all ranks have the same states. Collective."""
    states_now = repr((random.getstate(), [np.asarray(part).tolist() for part in np.random.get_state()]))
    each = collectives.all_gather(np.frombuffer(hashlib.blake2b(states_now.encode(), digest_size=8).digest(), np.uint8))
    return all(np.array_equal(one, each[0]) for one in each)
