"""Tarantella: synchronous distributed training for TensorFlow and Keras.

    import tarantella as tnt

    model = tnt.Model(keras_model)
    model.compile(...)
    model.fit(dataset_with_global_batches, ...)

started with ``tarantella -n 4 -- train.py`` or ``mpirun -n 4 python train.py``, computes on 4 ranks what one device would.
Without a launcher the script runs on one rank. TensorFlow is imported when a model is first wrapped, or a
name for training loops of one's own is first used, not before.
"""

from __future__ import annotations

import importlib
import logging
import os as _os
from typing import TYPE_CHECKING, Any

from tarantella import installation as _installation

try:
    from tarantella import _native
except ImportError as error:
    raise ImportError(_installation.why_not(error, _os.path.dirname(__file__))) from error

from tarantella import environment as _environment
from tarantella import horovod_name as _horovod_name
from tarantella import interrupts as _interrupts
from tarantella import reporting as _reporting
from tarantella import tensorflow_import as _tensorflow_import
from tarantella import threads as _threads
from tarantella import trackers as _trackers
from tarantella import variables as _variables
from tarantella.errors import (
    AbortedError,
    DeadlineError,
    InvalidArgumentError,
    MismatchError,
    PeerLostError,
    RankFailedError,
    TarantellaError,
    UnsupportedError,
)
from tarantella.strategy import ParallelStrategy

if TYPE_CHECKING:
    from tarantella import keras as keras
    from tarantella.collectives import barrier as barrier
    from tarantella.collectives import broadcast as broadcast
    from tarantella.collectives import broadcast_object as broadcast_object
    from tarantella.collectives.group import Group as Group
    from tarantella.collectives.group import get_group_master_rank as get_group_master_rank
    from tarantella.collectives.group import is_group_master_rank as is_group_master_rank
    from tarantella.compat import data as data
    from tarantella.compat import tnt_initializer as tnt_initializer
    from tarantella.compat.configuration import global_tnt_config as global_tnt_config
    from tarantella.compat.operations import Allgatherv as Allgatherv
    from tarantella.compat.operations import Allreduce as Allreduce
    from tarantella.compat.operations import Barrier as Barrier
    from tarantella.compat.operations import Broadcast as Broadcast
    from tarantella.compat.operations import ReductionOp as ReductionOp
    from tarantella.compat.tensors import TensorAllgatherer as TensorAllgatherer
    from tarantella.compat.tensors import TensorAllreducer as TensorAllreducer
    from tarantella.compat.tensors import TensorBroadcaster as TensorBroadcaster
    from tarantella.keras import callbacks as callbacks
    from tarantella.keras import models as models
    from tarantella.keras.context import no_sync as no_sync
    from tarantella.keras.deferred import deferred_weights as deferred_weights
    from tarantella.keras.elastic import committed as elastic
    from tarantella.keras.loops import optimizers as optimizers
    from tarantella.keras.loops.tape import DistributedGradientTape as DistributedGradientTape
    from tarantella.keras.model import Model as Model
    from tarantella.keras.models import Sequential as Sequential
    from tarantella.keras.reduction.bucket_hook import PackedBucket as PackedBucket
    from tarantella.keras.reduction.collectives import broadcast_variables as broadcast_variables
    from tarantella.keras.reduction.plan import plan as plan
    from tarantella.keras.step.noise import noise_by_rank as noise_by_rank
    from tarantella.keras.step.noise import same_noise as same_noise
    from tarantella.keras.trial.declared import independent_samples as independent_samples
    from tarantella.launcher.start.function import launch as launch
    from tarantella.reduction import all_gather as all_gather
    from tarantella.reduction import all_reduce as all_reduce
    from tarantella.reduction import all_to_all as all_to_all
    from tarantella.reduction import reduce_scatter as reduce_scatter
    from tarantella.runtime import get_local_rank as get_local_rank
    from tarantella.runtime import get_local_size as get_local_size
    from tarantella.runtime import get_master_rank as get_master_rank
    from tarantella.runtime import get_rank as get_rank
    from tarantella.runtime import get_size as get_size
    from tarantella.runtime import is_master_rank as is_master_rank
    from tarantella.tuning import tuner as tuner

__version__ = _native.version()

logger = logging.getLogger("TNT_LIB")

# names that are loaded when they are first used: NumPy takes 0.1 s to import, TensorFlow several seconds
_LAZY = {
    "DistributedGradientTape": "tarantella.keras.loops.tape",
    "Model": "tarantella.keras.model",
    "PackedBucket": "tarantella.keras.reduction.bucket_hook",
    "broadcast_variables": "tarantella.keras.reduction.collectives",
    "deferred_weights": "tarantella.keras.deferred",
    "independent_samples": "tarantella.keras.trial.declared",
    "launch": "tarantella.launcher.start.function",
    "no_sync": "tarantella.keras.context",
    "noise_by_rank": "tarantella.keras.step.noise",
    "same_noise": "tarantella.keras.step.noise",
    "plan": "tarantella.keras.reduction.plan",
    **dict.fromkeys(("all_gather", "all_reduce", "all_to_all", "reduce_scatter"), "tarantella.reduction"),
    **dict.fromkeys(("barrier", "broadcast", "broadcast_object"), "tarantella.collectives"),
    "tuner": "tarantella.tuning",
    **dict.fromkeys(
        ("get_local_rank", "get_local_size", "get_master_rank", "get_rank", "get_size", "is_master_rank"), "tarantella.runtime"
    ),
    # of the predecessor: see tarantella/compat/__init__.py
    "Sequential": "tarantella.keras.models",
    "global_tnt_config": "tarantella.compat.configuration",
    **dict.fromkeys(("Group", "get_group_master_rank", "is_group_master_rank"), "tarantella.collectives.group"),
    **dict.fromkeys(("Allgatherv", "Allreduce", "Barrier", "Broadcast", "ReductionOp"), "tarantella.compat.operations"),
    **dict.fromkeys(("TensorAllgatherer", "TensorAllreducer", "TensorBroadcaster"), "tarantella.compat.tensors"),
}
_LAZY_MODULES = {
    "callbacks": "tarantella.keras.callbacks",
    "data": "tarantella.compat.data",
    "elastic": "tarantella.keras.elastic.committed",
    "keras": "tarantella.keras",
    "models": "tarantella.keras.models",
    "optimizers": "tarantella.keras.loops.optimizers",
    "tnt_initializer": "tarantella.compat.tnt_initializer",
}

__all__ = [
    "AbortedError",
    "Allgatherv",
    "Allreduce",
    "Barrier",
    "Broadcast",
    "DeadlineError",
    "DistributedGradientTape",
    "Group",
    "InvalidArgumentError",
    "MismatchError",
    "Model",
    "PackedBucket",
    "ParallelStrategy",
    "PeerLostError",
    "RankFailedError",
    "ReductionOp",
    "Sequential",
    "TarantellaError",
    "TensorAllgatherer",
    "TensorAllreducer",
    "TensorBroadcaster",
    "UnsupportedError",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "data",
    "deferred_weights",
    "elastic",
    "get_group_master_rank",
    "get_local_rank",
    "get_local_size",
    "get_master_rank",
    "get_rank",
    "get_size",
    "global_tnt_config",
    "independent_samples",
    "is_group_master_rank",
    "is_master_rank",
    "keras",
    "launch",
    "logger",
    "models",
    "no_sync",
    "noise_by_rank",
    "optimizers",
    "plan",
    "reduce_scatter",
    "same_noise",
    "tnt_initializer",
    "tuner",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        value: Any = importlib.import_module(_LAZY_MODULES[name])
    elif name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    else:
        raise AttributeError(f"module 'tarantella' has no attribute {name!r}")
    if _variables.ELASTIC in _os.environ:
        from tarantella import generations  # by it this process joins the job

        value = generations.public(name, value) if generations.is_newcomer() else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_MODULES})


def _check_loops() -> None:
    from tarantella.keras.loops import guard

    guard.install()


if _environment.in_job() and _variables.REPORT_FD not in _os.environ:
    _threads.share_cores()  # our launcher has done it already, for its ranks
_tensorflow_import.before_first_tape(_check_loops)
_tensorflow_import.install()
_horovod_name.install()
_trackers.install()
if _variables.REPORT_FD in _os.environ:  # a rank of our launcher
    _interrupts.install()
_reporting.install(only_if_leader=True)  # also what Ctrl-C hides from the user
