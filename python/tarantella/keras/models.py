"""`tnt.models`: Keras models from files, configurations and other models, ready to train on all ranks."""

import os
from typing import Any

from tarantella import runtime
from tarantella.keras import adapter, files
from tarantella.keras.adapter import keras
from tarantella.keras.model import Model

__all__ = [
    "Sequential",
    "clone_model",
    "load_model",
    "model_from_config",
    "model_from_json",
    "model_from_yaml",
    "save_model",
]


class Sequential(Model):
    """A `tnt.Model` of a Keras `Sequential` model.

    Args:
        layers: as Keras' `Sequential` takes them.
        name: the name of the model.
        options: those of `tnt.Model`.

    Examples:
        >>> model = tnt.Sequential([keras.layers.Dense(10)])
        >>> model.compile(optimizer="adam", loss="mse")
    """

    def __new__(cls, layers: Any = None, name: str | None = None, **options: Any) -> Any:
        return super().__new__(cls, keras.Sequential(layers, name=name), **options)


def load_model(filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """Keras' `load_model`, as a `tnt.Model`: compiled and with the optimizer's state, if Keras restores them. Collective.

    Every rank reads the file, and goes on when all have read it. Of a SavedModel folder legacy Keras does not restore the
    optimizer's state, and the log says so.

    Args:
        filepath, ...: as Keras' `load_model` takes them.

    Examples:
        >>> model = tnt.models.load_model("model.keras")
        >>> model.fit(dataset.batch(256), initial_epoch=3, epochs=6)     # continues where the file was written
    """
    model = files.read(lambda: Model(keras.models.load_model(filepath, *args, **kwargs)))
    if os.path.isdir(filepath) and adapter.is_compiled(model.model):
        runtime.logger.warning(
            "%s: Keras does not restore the optimizer's state from a SavedModel folder: the optimizer begins anew. Save to a "
            "file that ends with .keras to continue with its state",
            filepath,
        )
    return model


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


def model_from_yaml(yaml_string: str, **kwargs: Any) -> Any:
    """Raises RuntimeError, as Keras does since TensorFlow 2.6: YAML could run code. `model_from_json` takes its place."""
    raise RuntimeError("Keras has no models in YAML any more: use to_json, and tnt.models.model_from_json to read it")
