"""mlflow in a job: rank 0 tracks, and other ranks run the same script without a trace in the user's store.

mlflow has no variable that turns it off. So it is prepared when a rank imports it. On other ranks than 0, `autolog` is called
with ``disable=True``, and all other calls work on a store of the rank's own, which is removed when the rank ends. On rank 0,
`autolog` does not describe the data: it would see this rank's part of the batches in the place of the user's data.
"""

import atexit
import functools
import importlib.abc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from tarantella import environment, settings

_FLAVORS = ("mlflow.tensorflow", "mlflow.keras")
_OF_RANK_0 = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_REGISTRY_URI")
"""What names things in the user's store."""


def install() -> None:
    """Prepares mlflow for a rank of several, now or when the script imports it, unless TNT_ON_ALL_RANKS has ``mlflow``."""
    if not environment.in_job() or settings.on_all_ranks("mlflow"):
        return
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    for name in ("mlflow", *_FLAVORS):
        if name in sys.modules and hasattr(sys.modules[name], "autolog"):
            _prepare(sys.modules[name])
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the usual finder import mlflow, then prepares it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in ("mlflow", *_FLAVORS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if name == "mlflow" and not environment.is_first_rank():
                _own_store()
            run(module)
            _prepare(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


@functools.cache
def _own_store() -> str:
    """The URI of a store that is removed when this rank ends, and is mlflow's by default."""
    folder = tempfile.mkdtemp(prefix="tarantella-mlflow-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in _OF_RANK_0:
        os.environ.pop(name, None)
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_TRACKING_URI"] = f"file://{folder}"
    return os.environ["MLFLOW_TRACKING_URI"]


def _prepare(module: ModuleType) -> None:
    first = environment.is_first_rank()
    if module.__name__ in _FLAVORS:
        forced = {"log_datasets": False} if first else {"disable": True}
        module.autolog = _forced(module.autolog, forced)  # type: ignore[attr-defined]
    elif not first:
        module.set_tracking_uri(_own_store())  # the script may have named the user's before it imported tarantella
        for name in ("set_tracking_uri", "set_registry_uri"):
            setattr(module, name, _without_effect(getattr(module, name)))


def _forced(autolog: Callable[..., Any], arguments: dict[str, Any]) -> Callable[..., Any]:
    """`autolog` with these arguments, which win over those of the caller. mlflow passes all of them by name."""

    @functools.wraps(autolog)
    def with_arguments(*args: Any, **kwargs: Any) -> Any:
        return autolog(*args, **{**kwargs, **arguments})

    return with_arguments


def _without_effect(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def ignored(*args: Any, **kwargs: Any) -> None:
        pass

    return ignored
