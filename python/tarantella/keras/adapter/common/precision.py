"""The precision in which layers compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tarantella.keras.adapter.common.models import layers_of
from tarantella.keras.adapter.front_end import LEGACY, keras

_FEW_BITS = ("float16", "bfloat16")


def in_full_precision(model: Any) -> Iterator[tuple[Any, str, Any]]:
    """A patch (owner, attribute, value) with which layers of mixed precision compute in float32, as their weights are.

    The public ``dtype_policy`` of a layer can be set from Keras 3.4 on, and legacy Keras' cannot.
    """
    policy = keras.mixed_precision.Policy("float32") if LEGACY else keras.DTypePolicy("float32")
    for layer in layers_of(model):
        if getattr(layer, "compute_dtype", "") in _FEW_BITS and getattr(layer, "variable_dtype", "") == "float32":
            yield layer, "_dtype_policy", policy
            if LEGACY:
                yield layer, "_compute_dtype_object", tf.float32


def computes_in_16_bits(model: Any) -> bool:
    """Whether layers of the model compute in too few bits for a comparison, also where `in_full_precision` holds."""
    return any(
        getattr(layer, "compute_dtype", "") in _FEW_BITS and getattr(layer, "variable_dtype", "") != "float32"
        for layer in layers_of(model)
    )
