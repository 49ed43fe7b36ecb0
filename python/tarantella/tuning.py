"""`tnt.tuner`: a KerasTuner whose search is the same on all ranks, which train each of its models together."""

import atexit
import inspect
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarantella import collectives, runtime


def tuner(
    kind: Callable[..., Any],
    *args: Any,
    directory: str | os.PathLike[str] | None = None,
    project_name: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Any:
    """Makes a tuner of KerasTuner on all ranks, so that they try the same hyperparameters. Collective.

    Every rank runs the search. Ranks draw hyperparameters alike, because they take rank 0's seed if none is given, and because
    losses and metrics are the same on all of them. The master's tuner has the folder that is given; the others keep their
    files in temporary folders, into which they first copy what an earlier search has left.

    Args:
        kind: the tuner's class, such as ``keras_tuner.RandomSearch``.
        directory, project_name, overwrite: as the class takes them.
        args, options: others of the class, whose ``build`` returns a `tnt.Model`.

    Examples:
        >>> tuner = tnt.tuner(keras_tuner.RandomSearch, build, objective="val_loss", max_trials=20, directory="search")
        >>> tuner.search(x, y, batch_size=256, validation_split=0.1)
    """
    if "seed" in inspect.signature(kind).parameters and options.get("seed") is None:
        options["seed"] = collectives.broadcast_object(random.randrange(1 << 31))
    own = Path("." if directory is None else directory)
    if not runtime.is_master_rank():
        given, own = own, Path(tempfile.mkdtemp(prefix="tnt_tuner_"))
        atexit.register(_remove, own, os.getpid())
        if not overwrite:
            project = project_name or "untitled_project"  # as KerasTuner names it
            if (given / project).is_dir():
                shutil.copytree(given / project, own / project)
    collectives.barrier()  # copied, before the master's tuner writes there
    return kind(*args, directory=str(own), project_name=project_name, overwrite=overwrite, **options)


def _remove(folder: Path, rank: int) -> None:
    if os.getpid() == rank:  # not a fork of it
        shutil.rmtree(folder, ignore_errors=True)
