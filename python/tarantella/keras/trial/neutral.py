"""What is put aside in a trial: what couples samples by design, noise, and few bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tarantella.keras import adapter
from tarantella.keras.step.patch import Attribute

_OFF = {"rate": 0.0, "dropout": 0.0, "recurrent_dropout": 0.0, "stddev": 0.0}  # what makes layers draw noise


def neutral(model: Any) -> list[Attribute]:
    """Attributes of layers without which samples would be coupled by design, or differ in what they are multiplied by."""
    return [*_without_noise(model), *_without_batch_statistics(model), *adapter.in_full_precision(model)]


def _without_noise(model: Any) -> Iterator[Attribute]:
    """Layers of Keras draw no noise. That of others is found when two runs differ."""
    for layer in adapter.layers_of(model):
        if adapter.is_builtin(layer):
            for name, value in _OFF.items():
                if isinstance(layer.__dict__.get(name), (int, float)):
                    yield layer, name, value


def _without_batch_statistics(model: Any) -> Iterator[Attribute]:
    """BatchNormalization, which couples samples by design, takes mean 0 and variance 1."""
    for layer in adapter.layers_of(model):
        if isinstance(layer, adapter.keras.layers.BatchNormalization):
            if getattr(layer, "fused", False):  # of legacy Keras; the other way asks for the statistics that are replaced here
                yield layer, "fused", False
            yield layer, adapter.batch_statistics(), adapter.with_statistics(layer, _standard_moments)


def _standard_moments(x: tf.Tensor, axes: Sequence[int], keepdims: bool = False, mask: Any = None) -> tuple[Any, Any]:
    like = tf.reduce_mean(x, axes, keepdims=keepdims)
    return tf.zeros_like(like), tf.ones_like(like)
