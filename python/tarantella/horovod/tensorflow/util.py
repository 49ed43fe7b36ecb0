"""`horovod.tensorflow.util`, for scripts that ask in which mode TensorFlow runs."""

from __future__ import annotations

import tensorflow as tf


def _executing_eagerly() -> bool:
    """Whether operations run at once."""
    return bool(tf.executing_eagerly())
