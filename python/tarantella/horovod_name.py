"""The name ``horovod`` for `tarantella.horovod`, for scripts that import Horovod, if the environment asks for it.

`import horovod.tensorflow.keras as hvd` gives the module `tarantella.horovod.tensorflow.keras` itself. If Horovod is installed,
the import is refused: the script would run with it, and each rank would believe that it is alone.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from tarantella import settings

NAME = "horovod"
_OTHERS = ("torch", "mxnet", "spark", "ray")
_NO_SERVICE = (
    "Tarantella starts no compute service of tf.data: let each rank read its part (dataset.shard), or start dispatcher and "
    "workers by tf.data.experimental.service"
)


def install() -> None:
    """Lets this process import the name, if TNT_HOROVOD is 1. A second call does nothing."""
    if settings.horovod() and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == NAME:
            _refuse_installed()
        elif not name.startswith(f"{NAME}."):
            return None
        if name == f"{NAME}.tensorflow.data":
            raise ModuleNotFoundError(f"{name}: {_NO_SERVICE}", name=name)
        if name.split(".")[1:2] and name.split(".")[1] in _OTHERS:
            raise ModuleNotFoundError(f"{name}: Tarantella takes Horovod's place for TensorFlow and Keras only", name=name)
        ours = f"tarantella.{name}"
        if importlib.util.find_spec(ours) is None:
            return None
        return ModuleSpec(name, _Loader(ours), is_package=True)


class _Loader(importlib.abc.Loader):
    def __init__(self, ours: str) -> None:
        self._ours = ours

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._ours)  # what the import gives is then read from here


def _refuse_installed() -> None:
    installed = PathFinder.find_spec(NAME)
    if installed is not None and installed.origin is not None:  # a folder of this name, which is no package, has none
        raise ImportError(
            f"TNT_HOROVOD=1 asks for Tarantella under the name of Horovod, but Horovod is installed ({installed.origin}): "
            "uninstall it, or import tarantella.horovod in its place"
        )
