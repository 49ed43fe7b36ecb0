"""The hardware and software of this machine: the GPU as the driver reports it, the CUDA toolkit, NCCL."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
NCCL_FILE = "libnccl.so.2"
TOOLKIT = "/usr/local/cuda"  # where NVIDIA installs it


class NoGpu(Exception):
    """There is no GPU to check, for the reason in the text."""


@dataclass(frozen=True)
class Gpu:
    """The first GPU that CUDA shows."""

    name: str
    architecture: str  # "90"
    driver: str  # "580.159.03"
    driver_cuda: str  # "13.0"

    @property
    def slug(self) -> str:
        """Its name, for use in a file name."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


@dataclass(frozen=True)
class Nccl:
    """A library that can be loaded."""

    file: str
    version: tuple[int, int, int]

    @property
    def text(self) -> str:
        return ".".join(map(str, self.version))


def find_gpu() -> Gpu:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoGpu("this machine has no NVIDIA driver (libcuda.so.1)") from None
    code = cuda.cuInit(0)
    count = ctypes.c_int()
    if code == 0:
        code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code not in (0, 100):  # CUDA_ERROR_NO_DEVICE
        raise NoGpu(f"the NVIDIA driver does not work (cuInit: error {code})")
    if count.value == 0:
        raise NoGpu("the NVIDIA driver shows no GPU to this process (CUDA_VISIBLE_DEVICES?)")
    device, version, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    digits = ""
    for attribute in CAPABILITY:
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
        digits += str(number.value)
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return Gpu(name.value.decode(), digits, driver_version(), cuda_version)


def driver_version() -> str:
    said = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if said:
        return said.splitlines()[0].strip()
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else "unknown"


def output(*command: str) -> str:
    """The output of a small program; empty if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def find_tool(name: str) -> str | None:
    """A program of the CUDA toolkit: in PATH, in the toolkit that CUDACXX or CUDA_HOME name, or where NVIDIA installs it."""
    if name == "nvcc" and (named := os.environ.get("CUDACXX")):
        return named
    if found := shutil.which(name):
        return found
    folders = [Path(home) / "bin" for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home]
    if nvcc := (os.environ.get("CUDACXX") or shutil.which("nvcc")):
        folders.append(Path(nvcc).resolve().parent)
    folders.append(Path(TOOLKIT) / "bin")
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), None)


def toolkit_version(nvcc: str) -> str:
    found = re.search(r"release ([\d.]+), V([\d.]+)", output(nvcc, "--version"))
    return found[2] if found else "unknown"


def find_nccl() -> Nccl | None:
    """Searched as by the library (docs/settings.md), and in this Python's packages."""
    named = os.environ.get("TNT_NCCL_LIBRARY")
    folders = [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    wheels = [Path(folder) / place / NCCL_FILE for folder in folders for place in ("nvidia/nccl/lib", "nvidia/cu13/lib")]
    files = [named] if named else [*(str(file) for file in wheels if file.exists()), NCCL_FILE]
    for file in files:
        number = ctypes.c_int()
        try:
            if ctypes.CDLL(file).ncclGetVersion(ctypes.byref(number)) != 0:
                continue
        except (OSError, AttributeError):
            continue
        value = number.value
        return Nccl(file, (value // 10000, value // 100 % 100, value % 100))
    return None
