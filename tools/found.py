"""Prints the compilers, MPI, libraries and Python of this machine, one per line, in a tenth of a second.

A package that was built when other lines were printed is not up to date, and CMake has to look again. It looks where CMake
does: in CMAKE_PREFIX_PATH, in PATH and beside it, in the system's folders.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

ENVIRONMENT = (
    "CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "CUDAARCHS", "CUDA_HOME", "CUDA_PATH", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS",
    "ROCM_PATH", "CPATH", "LIBRARY_PATH", "CMAKE_PREFIX_PATH", "CMAKE_ARGS", "CMAKE_TOOLCHAIN_FILE", "SKBUILD_CMAKE_ARGS",
    "SKBUILD_CMAKE_DEFINE", "MPI_HOME", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR",
)  # fmt: skip
LIBRARIES = ("fmt", "nlohmann_json", "CLI11")
HEADERS = ("gloo/allreduce.h", "nccl.h")
PYTHON_PACKAGES = ("nanobind", "scikit-build-core", "tensorflow", "tensorflow-cpu")


def paths(variable: str) -> list[Path]:
    return [Path(part) for part in re.split("[:;]", os.environ.get(variable, "")) if part]


def programs_in() -> list[Path]:
    named = [prefix / "bin" for prefix in [*paths("MPI_HOME"), *paths("CMAKE_PREFIX_PATH")]]
    cuda = [prefix / "bin" for name in ("CUDA_HOME", "CUDA_PATH") for prefix in paths(name)]
    return [*named, *paths("PATH"), *cuda, *map(Path, ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/cuda/bin"))]


def prefixes() -> list[Path]:
    beside = [path.parent for path in paths("PATH") if path.name in ("bin", "sbin")]
    return [*paths("CMAKE_PREFIX_PATH"), *beside, Path("/usr/local"), Path("/usr")]


def program(name: str, *arguments: str) -> str:
    """Its path and the first line of its version; an update changes one of them."""
    where = next((path / name for path in programs_in() if os.access(path / name, os.X_OK)), None)
    if where is None:
        return "none"
    merged = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run([where, *arguments], text=True, timeout=5, **merged)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{where}: {type(error).__name__}"
    if done.returncode != 0:
        return f"{where}: ends with code {done.returncode}"
    lines = [line for line in done.stdout.splitlines() if not line.startswith("Copyright")]
    release = next((line for line in lines if "release" in line), None)  # nvcc's comes fourth
    return f"{where}: {release or (lines[0] if lines else '')} ({os.path.realpath(where)})"


def library(name: str) -> str:
    """Its version, from the file that find_package reads."""
    for prefix in prefixes():
        for folder in ("lib/cmake", "lib64/cmake", "share/cmake", "lib/*/cmake", "share", "lib"):
            for file in sorted(prefix.glob(f"{folder}/{name}*/*ersion.cmake")):
                if version := re.search(r'PACKAGE_VERSION "?([^")\s]+)', file.read_text(errors="replace")):
                    return f"{version[1]} ({file.parent})"
    return "none"


def header(name: str) -> str:
    return next((str(prefix) for prefix in prefixes() if (prefix / "include" / name).is_file()), "none")


def python_package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def main() -> None:
    questions = {
        "C compiler": (os.environ.get("CC") or "cc", "--version"),
        "C++ compiler": (os.environ.get("CXX") or "c++", "--version"),
        "CUDA compiler": (os.environ.get("CUDACXX") or "nvcc", "--version"),
        "HIP compiler": ("hipcc", "--version"),
        **{name: (name, "-show") for name in ("mpicc", "mpicc.openmpi", "mpicc.mpich")},
        "cmake": ("cmake", "--version"),
        "ninja": ("ninja", "--version"),
        "ccache": ("ccache", "--version"),
    }
    with ThreadPoolExecutor() as pool:  # they wait for processes
        answers = dict(zip(questions, pool.map(lambda words: program(*words), questions.values()), strict=True))
    answers |= {name: library(name) for name in LIBRARIES}
    answers |= {name: header(name) for name in HEADERS}
    answers["python"] = f"{sys.version.split()[0]} ({sys.base_prefix})"
    answers |= {name: python_package(name) for name in PYTHON_PACKAGES}
    answers |= {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    for name, answer in answers.items():
        print(f"{name}: {answer}")


if __name__ == "__main__":
    main()
