"""Made-up batches for trials of steps and of the losses that layers add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tarantella.keras.step.trial import Shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def batch(samples: int, batch_spec: Any, labels: Callable[..., Any]) -> Any:
    """A batch of three samples of these specs. The samples differ much from each other, so that coupling shows."""
    random, shapes = np.random.default_rng(2), Shapes(samples, batch_spec)

    def made(spec: Any, make: Callable[..., Any]) -> Any:
        if spec is None:
            return None
        shape = shapes.of(spec)
        scale = np.array([0.4, 1.0, 2.0]).reshape(-1, *[1] * (len(shape) - 1))
        if spec.dtype.is_floating:
            values = make(random, shape, scale)
        else:
            values = random.integers(0, 2, shape) if make is _inputs else np.where(_is_zero(shape), 0, 1)
        return np.asarray(values, spec.dtype.as_numpy_dtype)

    def all_made(specs: Any, make: Callable[..., Any]) -> Any:
        return tf.nest.map_structure(lambda spec: made(spec, make), specs)

    if not isinstance(batch_spec, tuple):
        return all_made(batch_spec, _inputs)
    makers = (_inputs, labels, _weights)
    return tuple(all_made(specs, makers[min(i, 2)]) for i, specs in enumerate(batch_spec))


def _inputs(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    return random.normal(size=shape) * scale


def numbers(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    return np.where(_is_zero(shape), 0, 0.05 + 0.9 * random.random(shape))


def _is_zero(shape: Sequence[int]) -> Any:
    """Every other number of the second sample: where zeros do not count, the samples count for different numbers."""
    every_other = np.arange(np.prod(shape[1:], dtype=np.int64)).reshape(shape[1:]) % 2 == 0
    return np.stack([every_other & (i == 1) for i in range(shape[0])]) if shape else np.zeros(shape, bool)


def classes(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    if len(shape) > 1 and shape[-1] > 1:
        return np.eye(shape[-1])[random.integers(0, shape[-1], shape[:-1])]
    return random.integers(0, 2, shape)


def _weights(random: np.random.Generator, shape: Sequence[int], scale: Any) -> Any:
    return 0.2 + 1.6 * random.random(shape)
