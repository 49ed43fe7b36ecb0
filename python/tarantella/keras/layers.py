"""Layers that communicate with other ranks."""

from typing import Any

from tarantella.keras import adapter
from tarantella.keras.adapter import keras
from tarantella.keras.adapter.front_end import LEGACY
from tarantella.keras.step import normalization

__all__ = ["SplitLayer", "SyncBatchNormalization"]


class SyncBatchNormalization(keras.layers.BatchNormalization):  # type: ignore[misc]
    """Keras' `BatchNormalization`, which in training uses mean and variance of the samples of all ranks.

    The outputs, the gradients and the moving averages are those of one device with the whole batch, to rounding, even if ranks
    have different numbers of samples. The layer costs two small sums over ranks forward and two backward, for which ranks wait.
    Collective in training: every rank calls the layer equally often.

    In `tnt.Model` any ``keras.layers.BatchNormalization(synchronized=True)`` does the same. This class also does it in custom
    training loops; there, a rank always counts by the samples that it gives to the layer. In a file it is such a layer of
    Keras, and the file loads without Tarantella.

    Args:
        As `keras.layers.BatchNormalization` takes them, without ``synchronized``.

    Examples:
        >>> model = keras.Sequential([keras.Input((8,)), tnt.keras.layers.SyncBatchNormalization(), keras.layers.Dense(1)])
    """

    def __init__(self, axis: int = -1, **kwargs: Any) -> None:
        kwargs["synchronized"] = True
        super().__init__(axis, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "synchronized": True}  # legacy Keras forgets it


class SplitLayer(keras.layers.Layer if LEGACY else keras.layers.Identity):  # type: ignore[misc]
    """A place at which a pipeline cuts the model: what follows the layer is in a later stage than what comes before it.

    The layer does nothing else. In a file it is Keras' `Identity`, and the file loads without Tarantella.

    Args:
        As `keras.layers.Identity` takes them.

    Examples:
        >>> x = keras.layers.Dense(64, activation="relu")(inputs)
        >>> x = tnt.keras.layers.SplitLayer()(x)
        >>> model = tnt.Model(keras.Model(inputs, keras.layers.Dense(10)(x)), tnt.ParallelStrategy.PIPELINING)
    """

    def call(self, inputs: Any) -> Any:
        return inputs


def _statistics(layer: Any) -> Any:
    """The method that the hooks install on the layer in a step of `tnt.Model`, for all other steps."""
    return adapter.with_statistics(layer, normalization.moments)


setattr(
    SyncBatchNormalization,
    adapter.batch_statistics(),
    lambda layer, *args, **kwargs: _statistics(layer)(*args, **kwargs),
)
# Files identify the class by these names.
SyncBatchNormalization.__module__ = keras.layers.BatchNormalization.__module__
SyncBatchNormalization.__name__ = keras.layers.BatchNormalization.__name__
if not LEGACY:
    SplitLayer.__module__ = keras.layers.Identity.__module__
    SplitLayer.__name__ = keras.layers.Identity.__name__
