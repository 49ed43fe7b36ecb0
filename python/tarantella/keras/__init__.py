"""Keras models on many ranks. Importing anything in here imports TensorFlow."""

from tarantella.errors import UnsupportedError

try:
    import tensorflow as _tensorflow  # noqa: F401
except ModuleNotFoundError as error:
    raise UnsupportedError(
        f"TensorFlow is needed to train models and cannot be imported ({error}): "
        "pip install 'tarantella[cpu]', or 'tarantella[gpu]' for GPUs"
    ) from error
