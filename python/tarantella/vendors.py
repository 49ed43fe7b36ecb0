"""Who makes devices that TensorFlow computes on, and how each vendor's are shown to a process.

The launcher reads this, too: nothing here needs TensorFlow or the library.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Vendor:
    name: str
    kind: str
    """The type of its devices in TensorFlow."""
    showing: tuple[str, ...]
    """The variables with which users and clusters show a process some of them."""
    hiding: tuple[str, ...] = ()
    """Those with which programs hide all of them, if they are -1."""
    package: str = ""
    """What TensorFlow needs for them; empty: nothing but itself."""


VENDORS = (
    Vendor("NVIDIA", "GPU", ("CUDA_VISIBLE_DEVICES",), ("CUDA_VISIBLE_DEVICES",)),
    Vendor("AMD", "GPU", ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ("HIP_VISIBLE_DEVICES",), "tensorflow-rocm"),
    Vendor("Intel", "XPU", ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"), package="intel-extension-for-tensorflow"),
)
HIDING = tuple(name for vendor in VENDORS for name in vendor.hiding)


def showing(kind: str) -> tuple[str, ...]:
    """The variables that show a process some of the devices of this type, whoever makes them."""
    return tuple(name for vendor in VENDORS if vendor.kind == kind for name in vendor.showing)
