"""Gives each rank of a node its own device, a GPU or another accelerator, before TensorFlow takes all of them."""

import logging
import os
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tarantella import environment, mpi, settings, vendors
from tarantella.errors import InvalidArgumentError

logger = logging.getLogger("TNT_LIB")


def choose(tf: ModuleType) -> None:
    """Lets TensorFlow see one device of each type, by this rank's number on its node, if there are several.

    TensorFlow takes memory on every GPU that it sees as soon as it computes, so this happens when it is imported. Device
    plug-ins (Intel's XPU and others) have types of their own, for which the same holds. With TNT_GPUS_PER_NODE=n ranks share
    the first n devices, of the GPUs those that CUDA_VISIBLE_DEVICES leaves; with 0 they see none. A rank's TensorFlow takes
    memory of a GPU as it needs it, unless TF_FORCE_GPU_ALLOW_GROWTH says otherwise: it would leave none for buckets and for
    NCCL. What the script has chosen stays.

    Raises:
        InvalidArgumentError: there are fewer devices than TNT_GPUS_PER_NODE says, or TensorFlow has taken them already.
    """
    for kind in _choosable(tf.config.list_physical_devices()) or ["GPU"]:
        _choose(tf, kind)


SERVED_OTHERWISE = ("TPU", "XLA_")
"""How names of types begin whose devices a process cannot choose among."""


def first_devices(devices: list[Any], wanted: int | None) -> list[Any]:
    """Those that the ranks of a node share: so many as are wanted, or all of them."""
    return devices if wanted is None else devices[: max(wanted, 0)]


def device_of_rank(usable: list[Any], rank: int) -> list[Any]:
    """The one that a rank of the node sees; none if there are none."""
    return usable[rank % len(usable) :][:1] if usable else []


def shortage(tf: ModuleType) -> str:
    """What is wrong where this node has more ranks than devices and nobody asked for that, and what to do; else empty.

    To be asked when gradients are first reduced: until then a script may hide all devices. Ranks share devices where
    TNT_GPUS_PER_NODE says so, or where the script has chosen its own. One visible device may be this rank's alone, shown to it
    by srun, or by a vendor's variable.
    """
    rank, ranks = environment.local_rank(), mpi.local_size()
    if rank is None or settings.gpus_per_node() is not None:
        return ""
    devices = {kind: tf.config.list_physical_devices(kind) for kind in _choosable(tf.config.get_visible_devices())}
    chosen_here = {
        kind: tf.config.get_visible_devices(kind) == device_of_rank(present, rank) for kind, present in devices.items()
    }
    counts = {kind: len(present) for kind, present in devices.items() if chosen_here[kind]}
    most = max(counts.values(), default=ranks)
    shown = [name for kind in counts for name in vendors.showing(kind) if os.environ.get(name)]
    if most >= ranks or (most == 1 and (mpi.started_by_mpi() or shown)):
        return ""
    found = " and ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items())
    return (
        f"this node has {ranks} ranks and {found}: start at most {most} on it, let ranks share by "
        f"TNT_GPUS_PER_NODE={min(counts.values())}, or train on CPUs (--no-gpu)"
    )


def accelerators(devices: Iterable[Any]) -> list[str]:
    """The types of these devices beside CPUs, each once."""
    return [kind for kind in dict.fromkeys(device.device_type for device in devices) if kind != "CPU"]


def _choosable(devices: Iterable[Any]) -> list[str]:
    """The types of those among which a process can choose."""
    return [kind for kind in accelerators(devices) if not kind.startswith(SERVED_OTHERWISE)]


def _choose(tf: ModuleType, kind: str) -> None:
    wanted, rank = settings.gpus_per_node(), environment.local_rank()
    devices = tf.config.list_physical_devices(kind)
    if wanted is not None and wanted > len(devices):
        raise InvalidArgumentError(
            f"TNT_GPUS_PER_NODE={wanted}: this process sees {len(devices)}: leave it unset for all of them"
        )
    if not devices or tf.config.get_visible_devices(kind) != devices:
        return
    grows = kind == "GPU" and rank is not None and "TF_FORCE_GPU_ALLOW_GROWTH" not in os.environ
    usable = first_devices(devices, wanted)
    chosen = usable if rank is None else device_of_rank(usable, rank)
    shared = bool(chosen) and rank is not None and mpi.local_size() > len(usable)
    try:
        if chosen != devices:
            tf.config.set_visible_devices(chosen, kind)
        if chosen and (grows or (shared and kind == "GPU")):
            tf.config.experimental.set_memory_growth(chosen[0], True)
    except (RuntimeError, ValueError):
        if chosen == devices and not shared:  # this device is the rank's own, and TensorFlow has its memory
            return
        raise InvalidArgumentError(
            f"TensorFlow has used {kind}s before this rank could choose its own: import tarantella before anything is computed"
        ) from None
    perhaps_own = len(devices) == 1 and mpi.started_by_mpi()  # Slurm can show each rank a different GPU
    if shared and not perhaps_own and rank is not None and rank >= len(usable):
        logger.warning("this node has more ranks than its %d %ss: rank %d of it shares one with rank %d, and each takes the "
                       "memory that it needs", len(usable), kind, rank, rank % len(usable))  # fmt: skip
