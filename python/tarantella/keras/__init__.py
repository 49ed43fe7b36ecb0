"""Keras models on many ranks. Importing anything in here imports TensorFlow."""

import importlib
from typing import Any

from tarantella import versions as _versions
from tarantella.errors import UnsupportedError

try:
    import tensorflow as _tensorflow
except ModuleNotFoundError as error:
    raise UnsupportedError(
        f"TensorFlow is needed to train models and cannot be imported ({error}): "
        "pip install 'tarantella[cpu]', or 'tarantella[gpu]' for GPUs"
    ) from error
_versions.check("tensorflow", _tensorflow.__version__)

_PUBLIC = {
    **{name: f"tarantella.keras.{name}" for name in ("layers", "schedules")},
    # of the predecessor: see tarantella/compat/__init__.py
    "callbacks": "tarantella.keras.callbacks",
    **{name: f"tarantella.compat.{name}" for name in ("losses", "metrics", "utilities")},
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'tarantella.keras' has no attribute {name!r}")
    return importlib.import_module(_PUBLIC[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
