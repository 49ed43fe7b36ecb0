"""How many GPUs the ranks on this node see, found out without loading a vendor's runtime into the launcher."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Variables with which programs hide GPUs of NVIDIA and AMD, if they are -1."""
_OF_NVIDIA, _OF_AMD = "proc/driver/nvidia/gpus", "sys/class/kfd/kfd/topology/nodes"


def visible_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """The GPUs of NVIDIA or, if these are fewer, of AMD, of those that the vendor's variables leave.

    NVIDIA's are those of its driver, AMD's the nodes of its kernel driver that compute. root: where /proc and /sys are.
    """
    nvidia = len(list((root / _OF_NVIDIA).iterdir())) if (root / _OF_NVIDIA).is_dir() else 0
    amd = _left(sum(_amd_gpus(root / _OF_AMD)), environment.get("ROCR_VISIBLE_DEVICES"))
    return max(
        _left(nvidia, environment.get("CUDA_VISIBLE_DEVICES")),
        _left(amd, environment.get("HIP_VISIBLE_DEVICES")),
    )


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
