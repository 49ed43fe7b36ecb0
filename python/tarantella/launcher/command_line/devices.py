"""How many GPUs the ranks on this node see, found out without loading CUDA into the launcher."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpus(environment: Mapping[str, str] = os.environ, driver: Path = DRIVER) -> int:
    """The GPUs that NVIDIA's driver has, or as many of them as CUDA_VISIBLE_DEVICES names."""
    present = len(list(driver.iterdir())) if driver.is_dir() else 0
    named = environment.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return present
    devices = [device.strip() for device in named.split(",")]
    until = next((i for i, device in enumerate(devices) if device in ("", "-1")), len(devices))  # CUDA stops there, too
    return min(present, until)
