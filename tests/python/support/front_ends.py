"""The front ends that a test may run with: Keras 3, and legacy Keras where it is installed."""

from __future__ import annotations

import importlib.util

import pytest

needs_tf_keras = pytest.mark.skipif(
    importlib.util.find_spec("tf_keras") is None, reason="tf_keras is not installed: pip install --no-deps tf_keras"
)

BOTH = [
    pytest.param((2, {}), id="keras3-on-2"),
    pytest.param((2, {"TF_USE_LEGACY_KERAS": "1"}), marks=needs_tf_keras, id="legacy-on-2"),
]
"""Parameters of a fixture: how many ranks, and the environment of their front end."""
