"""`tnt.models`: Keras models from files, configurations and other models, ready to train on all ranks."""

from __future__ import annotations

from typing import Any

from tarantella.keras.adapter import keras
from tarantella.keras.model import Model

__all__ = ["Sequential", "clone_model", "load_model", "model_from_config", "model_from_json", "save_model"]


class Sequential(Model):
    """A `tnt.Model` of a Keras `Sequential` model.

    Args:
        layers: as Keras' `Sequential` takes them.
        name: the name of the model.
        options: those of `tnt.Model`.

    Example:
        >>> model = tnt.Sequential([keras.layers.Dense(10)])
        >>> model.compile(optimizer="adam", loss="mse")
    """

    def __new__(cls, layers: Any = None, name: str | None = None, **options: Any) -> Any:
        return super().__new__(cls, keras.Sequential(layers, name=name), **options)


def load_model(filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """Keras' `load_model`, as a `tnt.Model`: compiled and with the optimizer's state, if the file has them. All ranks read it.

    Args:
        filepath, ...: as Keras' `load_model` takes them.

    Example:
        >>> model = tnt.models.load_model("model.keras")
        >>> model.fit(dataset.batch(256), initial_epoch=3, epochs=6)     # continues where the file was written
    """
    return Model(keras.models.load_model(filepath, *args, **kwargs))


def save_model(model: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
    """Saves a `tnt.Model`, or a model of Keras, as `tnt.Model.save` does: a plain Keras file. Collective.

    Raises:
        TypeError: model is something else.
    """
    (model if issubclass(type(model), Model) else Model(model)).save(filepath, *args, **kwargs)


def clone_model(model: Any, *args: Any, **kwargs: Any) -> Any:
    """Keras' `clone_model`, as a `tnt.Model`: new weights, not compiled."""
    return Model(keras.models.clone_model(getattr(model, "model", model), *args, **kwargs))


def model_from_config(config: Any, **kwargs: Any) -> Any:
    """Makes a `tnt.Model` from the result of a functional or Sequential model's `get_config`.

    Raises:
        RuntimeError: it is the configuration of neither.
    """
    return Model.from_config(config, **kwargs)


def model_from_json(json_string: str, **kwargs: Any) -> Any:
    """Makes a `tnt.Model` from the result of `to_json`."""
    return Model(keras.models.model_from_json(json_string, **kwargs))
