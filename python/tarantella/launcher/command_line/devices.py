"""How many GPUs the ranks on this node see, found out without loading a vendor's runtime into the launcher."""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tarantella.vendors import VENDORS


def present(root: Path = Path("/")) -> dict[str, int]:
    """The GPUs that each vendor's kernel driver has. root: where /proc and /sys are.

    Intel's are those with a node for computing and no other vendor's; one is in most of Intel's processors.
    """
    nvidia = root / "proc/driver/nvidia/gpus"
    return {
        "NVIDIA": len(list(nvidia.iterdir())) if nvidia.is_dir() else 0,
        "AMD": sum(_amd_gpus(root / "sys/class/kfd/kfd/topology/nodes")),
        "Intel": sum(vendor.read_text().strip() == "0x8086" for vendor in root.glob("sys/class/drm/renderD*/device/vendor")),
    }


def visible_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """The GPUs of NVIDIA or, if these are fewer, of AMD, of those that the vendor's variables leave.

    NVIDIA's are those of its driver, AMD's the nodes of its kernel driver that compute. Intel's are not counted: which of them
    TensorFlow would use, nobody knows without it. root: where /proc and /sys are.
    """
    gpus = present(root)
    counted = [vendor for vendor in VENDORS if vendor.kind == "GPU"]
    return max(functools.reduce(_left, map(environment.get, vendor.showing), gpus[vendor.name]) for vendor in counted)


def _amd_gpus(nodes: Path) -> Iterator[bool]:
    """Whether it computes, for each node of AMD's kernel driver: CPUs are nodes, too, with no SIMD units."""
    for properties in nodes.glob("*/properties"):
        words = properties.read_text().split()
        yield dict(zip(words[::2], words[1::2], strict=False)).get("simd_count", "0") != "0"


def _left(present: int, named: str | None) -> int:
    """How many devices a vendor's variable leaves; None: it is not set."""
    if named is None:
        return present
    devices = [device.strip() for device in named.split(",")]
    until = next((i for i, device in enumerate(devices) if device in ("", "-1")), len(devices))  # CUDA stops there, too
    return min(present, until)
