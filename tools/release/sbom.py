"""Writes the bill of materials of a wheel in CycloneDX's format. The CMake folder says which libraries are compiled in."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from release.environments import ReleaseError

COMPILED_IN = {"fmt": "MIT", "nlohmann_json": "MIT", "CLI11": "BSD-3-Clause", "nanobind": "BSD-3-Clause"}
"""The libraries by the names under which CMake finds them, and their licences. All others are found at run time."""


def write(wheel: Path, cmake: Path) -> Path:
    """Writes WHEEL.cdx.json beside the wheel that was built in this CMake folder."""
    name, version = wheel.name.split("-")[:2]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    described = {"type": "library", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**described, "hashes": [{"alg": "SHA-256", "content": digest}]}},
        "components": [*_libraries(cmake), *_cuda(cmake)],
    }
    path = wheel.with_name(f"{wheel.name}.cdx.json")
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


def _libraries(cmake: Path) -> list[dict[str, Any]]:
    cache = (cmake / "CMakeCache.txt").read_text()
    found = []
    for name, licence in COMPILED_IN.items():
        folder = re.search(rf"^{name}_DIR:PATH=(/.*)$", cache, re.MULTILINE)
        if folder:  # CLI11 is a part of the benchmark alone
            found.append(_component(name, _version(name, Path(folder.group(1))), licence))
    return found


def _version(name: str, folder: Path) -> str:
    """From the file by which CMake compares versions."""
    for file in sorted([*folder.glob("*ConfigVersion.cmake"), *folder.glob("*config-version.cmake")]):
        if version := re.search(r'set\(PACKAGE_VERSION "([^"$]+)"', file.read_text()):
            return version.group(1)
    raise ReleaseError(f"{folder} does not tell the version of {name}, which the bill of materials needs")


def _cuda(cmake: Path) -> list[dict[str, Any]]:
    """The CUDA runtime, which the plug-in for GPUs has in it."""
    if not list(cmake.rglob("libtarantella_cuda.so")):
        return []
    return [_component("cudart", cuda_version(cmake), "LicenseRef-NVIDIA-CUDA")]


def cuda_version(cmake: Path) -> str:
    """That of the compiler of a CMake folder with the GPU part."""
    texts = (file.read_text() for file in cmake.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"))
    found = [version for text in texts for version in re.findall(r'set\(CMAKE_CUDA_COMPILER_VERSION "([^"]+)"', text)]
    if not found:
        raise ReleaseError(f"{cmake} does not tell the version of CUDA, which the bill of materials needs")
    return found[0]


def _component(name: str, version: str, licence: str) -> dict[str, Any]:
    return {"type": "library", "name": name, "version": version, "licenses": [{"expression": licence}]}
