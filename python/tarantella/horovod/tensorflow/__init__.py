"""`import tarantella.horovod.tensorflow as hvd`: Horovod for TensorFlow."""

import sys
from typing import Any

from tarantella.horovod.common import basics as _basics
from tarantella.horovod.common.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from tarantella.horovod.common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from tarantella.horovod.tensorflow import elastic as elastic
from tarantella.horovod.tensorflow import graphs as util
from tarantella.horovod.tensorflow.collectives import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from tarantella.horovod.tensorflow.compression import Compression
from tarantella.horovod.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
    broadcast_variables,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from tarantella.horovod.tensorflow.graphs import _executing_eagerly as _executing_eagerly
from tarantella.horovod.tensorflow.joining import join
from tarantella.horovod.tensorflow.layers import SyncBatchNormalization
from tarantella.horovod.tensorflow.objects import allgather_object, broadcast_object
from tarantella.horovod.tensorflow.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from tarantella.horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from tarantella.keras import adapter as _adapter
from tarantella.keras.loops import models as _models

__all__ = [
    "Adasum", "Average", "BroadcastGlobalVariablesHook", "Compression", "DistributedGradientTape", "DistributedOptimizer",
    "Max", "Min", "PartialDistributedGradientTape", "PartialDistributedOptimizer", "ProcessSet", "Product", "Sum",
    "SyncBatchNormalization", "add_process_set", "allgather", "allgather_object", "allreduce", "alltoall", "barrier",
    "broadcast", "broadcast_", "broadcast_global_variables", "broadcast_object", "broadcast_variables", "ccl_built",
    "cross_rank", "cross_size", "cuda_built", "ddl_built", "elastic", "global_process_set", "gloo_built", "gloo_enabled",
    "grouped_allgather", "grouped_allreduce", "grouped_reducescatter", "init", "is_homogeneous", "is_initialized", "join",
    "local_rank", "local_rank_op", "local_size", "local_size_op", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "process_set_included_op", "rank", "rank_op", "reducescatter", "remove_process_set", "rocm_built",
    "shutdown", "size", "size_op", "start_timeline", "stop_timeline",
]  # fmt: skip

mpi_ops = sys.modules[__name__]  # where scripts take the collectives from
sys.modules.update({f"{__name__}.mpi_ops": mpi_ops, f"{__name__}.util": util})


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the job. Collective. As `basics.init`. From then on scripts for Keras before 3 run."""
    _adapter.accept_old_spellings()
    _basics.init(comm, process_sets)
    _models.install()
