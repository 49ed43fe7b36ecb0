"""`tnt.keras.metrics`: a metric of the predecessor's pipelines."""

from typing import Any

import tensorflow as tf

from tarantella.keras.adapter import keras

__all__ = ["ZeroMetric"]


class ZeroMetric(keras.metrics.Metric):  # type: ignore[misc]
    """Is 0, whatever the model computes: for an output that has no metric."""

    def __init__(self, name: str = "zero_metric", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Keeps nothing."""

    def result(self) -> tf.Tensor:
        """0."""
        return tf.constant(0.0)
