"""A made-up batch, for models that must be tried before there is data: pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tarantella.keras.trial.comparison import NotComparable
from tarantella.keras.trial.parts import SAMPLES

_ANY_LENGTH, _ANY_LENGTH_OF_IMAGES = 4, 32


def batch(batch_spec: Any) -> Any:
    """Some samples of these specs, which differ much from each other, so that coupling shows.

    Raises:
        NotComparable: they cannot be made up.
    """
    random = np.random.default_rng(2)
    given = batch_spec if isinstance(batch_spec, tuple) else (batch_spec,)
    made = tuple(
        tf.nest.map_structure(lambda spec, place=place: None if spec is None else _made(spec, place, random), specs)
        for place, specs in enumerate(given)
    )
    return made if isinstance(batch_spec, tuple) else made[0]


def _made(spec: Any, place: int, random: np.random.Generator) -> tf.Tensor:
    """place: 0 for the inputs, 1 for the labels, 2 for their weights."""
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0) or spec.dtype == tf.string:
        raise NotComparable(f"it takes a {type(spec).__name__.removesuffix('Spec')} of {spec.dtype.name}")
    any_length = _ANY_LENGTH if spec.shape.rank < 4 else _ANY_LENGTH_OF_IMAGES
    shape = [SAMPLES, *(any_length if n is None else n for n in spec.shape[1:])]
    scale = np.linspace(0.3, 2, SAMPLES).reshape(-1, *[1] * (len(shape) - 1))
    numbers = np.asarray(random.integers(0, 2, shape), np.float64)
    if spec.dtype.is_floating:
        numbers = random.normal(size=shape) * scale if place == 0 else 0.05 + 0.9 * random.random(shape)
    if place == 1:  # where zeros do not count, samples have other numbers of them
        numbers = numbers * (random.random(shape) > 0.2 * scale)
    return tf.convert_to_tensor(numbers.astype(spec.dtype.as_numpy_dtype))
